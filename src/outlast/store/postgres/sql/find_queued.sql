-- Ids of queued jobs, newest first: of the line, of those that wait for their time and of suspects, each by
-- the index that holds these alone (as in find_running.sql). Of the line only the tasks $7 are read, in the queue if
-- one is asked for (NULL: all of it), of those that wait the queue. $1 to $4 as there; $5: the part of them
-- that is asked for; $6: how many. Reads only.
SELECT id FROM (
    (SELECT id, queue, task, tenant FROM outlast_jobs
     WHERE position IS NOT NULL AND $7::text[] IS NULL AND ($5::text IS NULL OR $5 = 'line')
     ORDER BY task, queue, (-priority), position OFFSET 0)
    UNION ALL
    (SELECT o.id, o.queue, o.task, o.tenant FROM unnest($7) AS t (task) CROSS JOIN LATERAL (
         SELECT * FROM outlast_jobs o
         WHERE o.position IS NOT NULL AND o.task = t.task COLLATE "C" AND ($2::text IS NULL OR o.queue = $2)
         ORDER BY o.task, o.queue, (-o.priority), o.position OFFSET 0) o
     WHERE $5 IS NULL OR $5 = 'line')
    UNION ALL
    (SELECT id, queue, task, tenant FROM outlast_jobs
     WHERE state = 'queued' AND position IS NULL AND solo = 0 AND ($5 IS NULL OR $5 = 'timed')
       AND ($2 IS NULL OR queue = $2)
     ORDER BY queue, run_at OFFSET 0)
    UNION ALL
    (SELECT id, queue, task, tenant FROM outlast_jobs
     WHERE state = 'queued' AND solo > 0 AND ($5 IS NULL OR $5 = 'suspects')
     ORDER BY solo, queue, task, priority DESC, run_at OFFSET 0)) j
WHERE id <= $1
  AND ($2 IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4)
ORDER BY id DESC LIMIT $6
