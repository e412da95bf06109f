-- Of each of these queues ($1) the jobs outside the line: due ones that were not put into it yet, and those that
-- wait for their time; each counted by index up to $2. Reads only.
SELECT w.queue,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = w.queue COLLATE "C" AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at <= statement_timestamp()
            ORDER BY o.queue, o.run_at LIMIT $2) c) AS due,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = w.queue COLLATE "C" AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at > statement_timestamp()
            ORDER BY o.queue, o.run_at LIMIT $2) c) AS scheduled
FROM unnest($1::text[]) AS w (queue)
