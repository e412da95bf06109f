-- Whether the queue, or the part $2 of it, has $1 rows or more that find_queued.sql would read: counted up to
-- there in all, in the ranges of the indexes that it reads. $3 and $4: queue and tasks, as there. Reads only.
SELECT count(*) >= $1 FROM (
    SELECT FROM (
        (SELECT FROM outlast_jobs
         WHERE position IS NOT NULL AND $4::text[] IS NULL AND ($2::text IS NULL OR $2 = 'line')
         ORDER BY task, queue, (-priority), position LIMIT $1::bigint)
        UNION ALL
        (SELECT FROM unnest($4) AS t (task) CROSS JOIN LATERAL (
             SELECT FROM outlast_jobs o
             WHERE o.position IS NOT NULL AND o.task = t.task COLLATE "C" AND ($3::text IS NULL OR o.queue = $3)
             ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT $1) o
         WHERE $2 IS NULL OR $2 = 'line' LIMIT $1)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE state = 'queued' AND position IS NULL AND solo = 0 AND ($2 IS NULL OR $2 = 'timed')
           AND ($3 IS NULL OR queue = $3)
         ORDER BY queue, run_at LIMIT $1)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE state = 'queued' AND solo > 0 AND ($2 IS NULL OR $2 = 'suspects')
         ORDER BY solo, queue, task, priority DESC, run_at LIMIT $1)) parts
    LIMIT $1) c
