-- Where a job stands among the others: each count is by one index and stops at $2. The order that
-- is asked for inside of a count is that of the index, which leaves no cheaper way than by it.
-- Reads only; one snapshot.
SELECT least($2::bigint, (
           SELECT count(*) FROM (
               SELECT FROM outlast_jobs o
               WHERE o.queue = j.queue AND o.position IS NOT NULL AND o.priority > j.priority
               ORDER BY o.queue, o.priority DESC, o.position LIMIT $2) c) + (
           SELECT count(*) FROM (
               SELECT FROM outlast_jobs o
               WHERE o.queue = j.queue AND o.position IS NOT NULL AND o.priority = j.priority
                 AND o.position < coalesce(j.position, 9223372036854775807)
               ORDER BY o.queue, o.priority DESC, o.position LIMIT $2) c)) AS before,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o WHERE o.position IS NOT NULL
            ORDER BY o.queue, o.priority DESC, o.position LIMIT $2) c) AS due,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o WHERE o.queue = j.queue AND o.position IS NOT NULL
            ORDER BY o.queue, o.priority DESC, o.position LIMIT $2) c) AS due_here,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = j.queue AND o.task = j.task AND o.position IS NOT NULL
            ORDER BY o.queue, o.task, o.priority DESC, o.position LIMIT $2) c) AS due_alike,
       w.waiting, w.retrying,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = j.queue AND o.state = 'queued' AND o.solo > 0
            ORDER BY o.queue, o.run_at LIMIT $2) c) AS suspects,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o WHERE o.worker_id = j.worker_id LIMIT $2) c) AS beside,
       (SELECT count(*) FILTER (WHERE c.task = j.task) FROM (
            SELECT o.task FROM outlast_jobs o WHERE o.state = 'dead'
            ORDER BY o.id DESC LIMIT $2) c) AS dead_alike,
       ARRAY(SELECT o.id FROM outlast_jobs o
             WHERE o.incident = j.incident AND o.incident IS NOT NULL AND o.id <> j.id
             ORDER BY o.incident LIMIT $3) AS incident,
       (SELECT o.id FROM outlast_jobs o
        WHERE o.key = j.key AND o.key IS NOT NULL AND o.state IN ('queued', 'running')
          AND o.id <> j.id) AS key_holder
FROM outlast_jobs j
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, count(*) FILTER (WHERE c.failures + c.losses > 0) AS retrying
    FROM (SELECT o.failures, o.losses FROM outlast_jobs o
          WHERE o.queue = j.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
            AND o.run_at > statement_timestamp()
          ORDER BY o.queue, o.run_at LIMIT $2) c) w
WHERE j.id = $1
