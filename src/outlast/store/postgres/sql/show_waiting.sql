-- Jobs outside the line by queue: due ones that were not put into it yet, and those that wait
-- for their time; each counted by index up to $1. Reads only.
WITH RECURSIVE q (queue) AS (
    (SELECT queue FROM outlast_jobs WHERE state = 'queued' AND position IS NULL AND solo = 0
     ORDER BY queue, run_at LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM outlast_jobs j
            WHERE j.state = 'queued' AND j.position IS NULL AND j.solo = 0 AND j.queue > q.queue
            ORDER BY j.queue, j.run_at LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL)
SELECT q.queue,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = q.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at <= statement_timestamp()
            ORDER BY o.queue, o.run_at LIMIT $1) c) AS due,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = q.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at > statement_timestamp()
            ORDER BY o.queue, o.run_at LIMIT $1) c) AS scheduled,
       (SELECT extract(epoch FROM o.run_at)::float8 FROM outlast_jobs o
        WHERE o.queue = q.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
          AND o.run_at <= statement_timestamp()
        ORDER BY o.queue, o.run_at LIMIT 1) AS oldest
FROM q WHERE q.queue IS NOT NULL
