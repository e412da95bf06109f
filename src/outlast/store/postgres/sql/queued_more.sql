-- Whether the queue, or the part $2 of it, has $1 rows or more: counted up to there in all, by the indexes of
-- find_queued.sql, whose order is asked for here as well. Reads only.
SELECT count(*) >= $1 FROM (
    SELECT FROM (
        (SELECT FROM outlast_jobs WHERE position IS NOT NULL AND ($2::text IS NULL OR $2 = 'line')
         ORDER BY task, queue, (-priority), position LIMIT $1::bigint)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE state = 'queued' AND position IS NULL AND solo = 0 AND ($2 IS NULL OR $2 = 'timed')
         ORDER BY queue, run_at LIMIT $1)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE state = 'queued' AND solo > 0 AND ($2 IS NULL OR $2 = 'suspects')
         ORDER BY solo, queue, task, priority DESC, run_at LIMIT $1)) parts
    LIMIT $1) c
