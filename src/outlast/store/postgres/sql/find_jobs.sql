-- Find ids of jobs for a list, newest first, in bounded steps. Reads only.

-- name: all_floor
-- The id of the last of $2 rows, from the id $1 downwards. Reads only.
SELECT id FROM outlast_jobs WHERE id <= $1 ORDER BY id DESC LIMIT 1 OFFSET $2::integer - 1

-- name: all
-- Ids of jobs among the newest $5 rows, newest first: what a look reads ends with the last one that is asked for. $6: the
-- state, $8: the part of the queue, $7: how many. $1: the largest id. $2 to $4: queue, task and tenant. What is not set is
-- NULL. Reads only.
SELECT id FROM (
    SELECT id, queue, task, tenant, state, position, solo FROM outlast_jobs
    WHERE id <= $1 ORDER BY id DESC LIMIT $5::integer) j
WHERE ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4)
  AND ($6::text IS NULL OR state = $6)
  AND ($8::text IS NULL
       OR $8 = CASE WHEN position IS NOT NULL THEN 'line' WHEN solo = 0 THEN 'timed' ELSE 'suspects' END)
ORDER BY id DESC LIMIT $7

-- name: label_floor
-- The job of the last of $2 rows of the label $3, from the id $1 downwards. Reads only.
SELECT job_id FROM outlast_labels WHERE label = $3 AND job_id <= $1
ORDER BY label DESC, job_id DESC LIMIT 1 OFFSET $2::integer - 1

-- name: label
-- Ids of jobs with the label $8, newest first, down to $5, by the index of labels. $6: the state, $7: how many.
-- $1: the largest id. $2 to $4: queue, task and tenant; one that is not set is NULL. Reads only.
SELECT l.job_id AS id
FROM outlast_labels l
CROSS JOIN LATERAL (
    SELECT j.queue, j.task, j.tenant, j.state FROM outlast_jobs j WHERE j.id = l.job_id LIMIT 1) j
WHERE l.label = $8 AND l.job_id <= $1 AND l.job_id >= $5::bigint
  AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.task = $3)
  AND ($4::text IS NULL OR j.tenant = $4)
  AND ($6::text IS NULL OR j.state = $6)
ORDER BY l.label DESC, l.job_id DESC LIMIT $7

-- name: dead_floor
-- The id of the last of $2 dead jobs, from the id $1 downwards. Reads only.
SELECT id FROM outlast_jobs WHERE state = 'dead' AND id <= $1 ORDER BY id DESC LIMIT 1 OFFSET $2::integer - 1

-- name: dead
-- Ids of dead jobs, newest first, down to $5, by their own index. $6: how many.
-- $1: the largest id. $2 to $4 and $7: queue, task, tenant and fingerprint; one that is not set is NULL.
-- Reads only.
SELECT id FROM outlast_jobs
WHERE state = 'dead' AND id <= $1 AND id >= $5::bigint
  AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4) AND ($7::text IS NULL OR fingerprint = $7)
ORDER BY id DESC LIMIT $6

-- name: group
-- Ids of the dead jobs of a group ($3), newest first, from $1 down to $2, by their own index, which holds the
-- fingerprint: no row is read. $4: how many. Reads only.
SELECT id FROM outlast_jobs
WHERE state = 'dead' AND id <= $1 AND id >= $2::bigint AND fingerprint = $3
ORDER BY id DESC LIMIT $4

-- name: running
-- Ids of running jobs, newest first, by the index that holds these alone: the order inside asks for it,
-- and OFFSET keeps the filters out (a walk by id would look at all finished jobs). $1: the largest id.
-- $2 to $4 and $6: queue, task, tenant and worker; one that is not set is NULL. $5: how many. Reads only.
SELECT id FROM (
    SELECT id, queue, task, tenant, worker_id FROM outlast_jobs
    WHERE worker_id IS NOT NULL ORDER BY worker_id, cancel_requested OFFSET 0) j
WHERE id <= $1
  AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4) AND ($6::bigint IS NULL OR worker_id = $6)
ORDER BY id DESC LIMIT $5

-- name: lined
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

-- name: queued
-- Ids of queued jobs, newest first: of the line, of those that wait for their time and of suspects, each by
-- the index that holds these alone (as in `running`). Of the line only the tasks $7 are read, in the queue if
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

-- name: queued_more
-- Whether the queue, or the part $2 of it, has $1 rows or more that `queued` would read: counted up to
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
