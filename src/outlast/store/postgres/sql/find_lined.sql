-- The tasks that have jobs of the queue $1 in the line, and how many probes that took, $2 at most: from each task by
-- one to where the queue stands or would stand in it, and by one to the next task. Reads only.
WITH RECURSIVE t AS (
    (SELECT task, queue FROM outlast_jobs WHERE position IS NOT NULL
     ORDER BY task, queue, (-priority), position LIMIT 1)
    UNION ALL
    SELECT n.task, n.queue
    FROM t CROSS JOIN LATERAL (
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE t.queue < $1::text AND o.position IS NOT NULL AND (o.task, o.queue) >= (t.task, $1)
         ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1)
        UNION ALL
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE t.queue >= $1 AND o.position IS NOT NULL AND o.task > t.task
         ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1)) n)
SELECT coalesce(array_agg(task) FILTER (WHERE queue = $1), '{}') AS tasks, count(*) AS probes
FROM (SELECT * FROM t LIMIT $2) s
