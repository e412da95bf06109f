-- The line by queue and task, with the oldest due time of each. The heads of its parts are stepped
-- from one to the next by index (three probes each, however long they are); each part is counted
-- by index up to $1, and $2 heads are looked at. Reads only.
WITH RECURSIVE head AS (
    (SELECT queue, task, priority, run_at FROM outlast_jobs WHERE position IS NOT NULL
     ORDER BY queue, task, priority DESC, position LIMIT 1)
    UNION ALL
    SELECT n.queue, n.task, n.priority, n.run_at
    FROM head h CROSS JOIN LATERAL (
        SELECT * FROM (
            (SELECT 1 AS step, queue, task, priority, run_at FROM outlast_jobs
             WHERE position IS NOT NULL AND queue = h.queue AND task = h.task
               AND priority < h.priority
             ORDER BY queue, task, priority DESC, position LIMIT 1)
            UNION ALL
            (SELECT 2, queue, task, priority, run_at FROM outlast_jobs
             WHERE position IS NOT NULL AND queue = h.queue AND task > h.task
             ORDER BY queue, task, priority DESC, position LIMIT 1)
            UNION ALL
            (SELECT 3, queue, task, priority, run_at FROM outlast_jobs
             WHERE position IS NOT NULL AND queue > h.queue
             ORDER BY queue, task, priority DESC, position LIMIT 1)) c
        ORDER BY step LIMIT 1) n
), lane AS (
    SELECT queue, task, min(run_at) AS oldest FROM (SELECT * FROM head LIMIT $2) c
    GROUP BY queue, task)
SELECT l.queue, l.task,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = l.queue AND o.task = l.task AND o.position IS NOT NULL
            ORDER BY o.queue, o.task, o.priority DESC, o.position LIMIT $1) c) AS number,
       extract(epoch FROM l.oldest)::float8 AS oldest
FROM lane l ORDER BY l.queue, l.task
