-- The line by queue and task, with the oldest due time of each. The heads of its lanes are stepped
-- from one to the next by index (one probe each, however long they are); each queue's part of a task
-- is counted by index up to $1, and $2 heads are looked at. Reads only.
WITH RECURSIVE head AS (
    (SELECT queue, task, -priority AS rank, run_at FROM outlast_jobs WHERE position IS NOT NULL
     ORDER BY task, queue, (-priority), position LIMIT 1)
    UNION ALL
    SELECT n.queue, n.task, n.rank, n.run_at
    FROM head h CROSS JOIN LATERAL (
        SELECT j.queue, j.task, -j.priority AS rank, j.run_at FROM outlast_jobs j
        WHERE j.position IS NOT NULL
          AND (j.task, j.queue, (-j.priority)) > (h.task, h.queue, h.rank)
        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n
), lane AS (
    SELECT queue, task, min(run_at) AS oldest FROM (SELECT * FROM head LIMIT $2) c
    GROUP BY queue, task)
SELECT l.queue, l.task,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = l.queue AND o.task = l.task AND o.position IS NOT NULL
            ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT $1) c) AS number,
       extract(epoch FROM l.oldest)::float8 AS oldest
FROM lane l ORDER BY l.queue, l.task
