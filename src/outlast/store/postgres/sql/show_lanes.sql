-- The lanes of the line by queue and task, with the oldest due time of each, however long they are: their heads are
-- stepped from one to the next by index, one probe each, of which there are $1 at most (heads: how many there
-- were; a queue and a task have one for each priority). Reads only.
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
), seen AS MATERIALIZED (SELECT * FROM head LIMIT $1)
SELECT queue, task, extract(epoch FROM min(run_at))::float8 AS oldest, (SELECT count(*) FROM seen) AS heads
FROM seen GROUP BY queue, task
