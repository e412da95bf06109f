-- Find ids of jobs for a list, newest first, in bounded steps, from :last downwards. Reads only. A filter that is
-- NULL lets every job pass.

-- name: all
-- Find the ids of matching jobs among the newest :rows rows. A call reads no further.
SELECT id FROM (
    SELECT id, {columns}, state, position, stream, solo FROM outlast_jobs
    WHERE id <= :last ORDER BY id DESC LIMIT :rows::integer) j
WHERE {chosen} AND (:state::text IS NULL OR state = :state)
  AND (:part::text IS NULL
       OR :part = CASE WHEN solo > 0 THEN 'suspects' WHEN position IS NULL THEN 'timed'
                         WHEN stream IS NULL THEN 'line' ELSE 'streams' END)
ORDER BY id DESC LIMIT :limit

-- name: label
-- Find jobs with a label, down to :floor, by the index of labels.
SELECT l.job_id AS id
FROM outlast_labels l
CROSS JOIN LATERAL (
    SELECT {j.columns}, j.state, j.fingerprint, j.worker_id, j.position, j.stream, j.solo
    FROM outlast_jobs j WHERE j.id = l.job_id LIMIT 1) j
WHERE l.label = :label AND l.job_id <= :last AND l.job_id >= :floor::bigint
  AND {j.chosen} AND (:state::text IS NULL OR j.state = :state)
  AND (:fingerprint::text IS NULL OR j.fingerprint = :fingerprint)
  AND (:worker_id::bigint IS NULL OR j.worker_id = :worker_id)
  AND (:part::text IS NULL
       OR :part = CASE WHEN j.solo > 0 THEN 'suspects' WHEN j.position IS NULL THEN 'timed'
                         WHEN j.stream IS NULL THEN 'line' ELSE 'streams' END)
ORDER BY l.label DESC, l.job_id DESC LIMIT :limit

-- name: running
-- Find running jobs, by the index that holds only these: the inner ORDER BY asks for it, and OFFSET keeps the filters
-- out of the subquery (a walk by id would read all finished jobs).
SELECT id FROM (
    SELECT id, {columns}, worker_id FROM outlast_jobs
    WHERE worker_id IS NOT NULL ORDER BY worker_id, cancel_requested OFFSET 0) j
WHERE id <= :last AND {chosen} AND (:worker_id::bigint IS NULL OR worker_id = :worker_id)
ORDER BY id DESC LIMIT :limit

-- name: blocked
-- Find jobs that wait for others, by the index that holds only these (as in `running`).
SELECT id FROM (
    SELECT id, {columns} FROM outlast_jobs WHERE state = 'blocked' AND id <= :last
    ORDER BY id DESC OFFSET 0) j
WHERE {chosen}
ORDER BY id DESC LIMIT :limit

-- name: lined
-- Find the tasks that have jobs of the queue in the line or in streams, and how many probes that took, :probes at most:
-- for each task, one probe goes to the queue's place in the index, and one to the next task.
WITH RECURSIVE t AS (
    (SELECT task, queue FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NULL
     ORDER BY task, queue, (-priority), position LIMIT 1)
    UNION ALL
    SELECT n.task, n.queue
    FROM t CROSS JOIN LATERAL (
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE t.queue < :queue::text AND o.position IS NOT NULL AND o.stream IS NULL
           AND (o.task, o.queue) >= (t.task, :queue)
         ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1)
        UNION ALL
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE t.queue >= :queue AND o.position IS NOT NULL AND o.stream IS NULL AND o.task > t.task
         ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1)) n
), s AS (
    (SELECT task, queue FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NOT NULL
     ORDER BY task, queue, stream, coalesce(aged, position) LIMIT 1)
    UNION ALL
    SELECT n.task, n.queue
    FROM s CROSS JOIN LATERAL (
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE s.queue < :queue AND o.position IS NOT NULL AND o.stream IS NOT NULL
           AND (o.task, o.queue) >= (s.task, :queue)
         ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT 1)
        UNION ALL
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE s.queue >= :queue AND o.position IS NOT NULL AND o.stream IS NOT NULL AND o.task > s.task
         ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT 1)) n)
SELECT coalesce(array_agg(DISTINCT task) FILTER (WHERE queue = :queue), '{}') AS tasks, count(*) AS probes
FROM ((SELECT * FROM t LIMIT :probes) UNION ALL (SELECT * FROM s LIMIT :probes)) b

-- name: queued
-- Find queued jobs. In the line and in streams only :tasks are read, and only :queue if it is given (tasks NULL: the
-- whole line); of the jobs that wait for their time, only :queue. Each part uses its own index (as in `running`).
SELECT id FROM (
    (SELECT id, {columns} FROM outlast_jobs
     WHERE position IS NOT NULL AND stream IS NULL AND solo <= 0 AND :tasks::text[] IS NULL AND (:part::text IS NULL OR :part = 'line')
     ORDER BY task, queue, (-priority), position OFFSET 0)
    UNION ALL
    (SELECT id, {columns} FROM outlast_jobs
     WHERE position IS NOT NULL AND stream IS NOT NULL AND solo <= 0 AND :tasks IS NULL AND (:part IS NULL OR :part = 'streams')
     ORDER BY task, queue, stream, coalesce(aged, position) OFFSET 0)
    UNION ALL
    (SELECT o.id, {o.columns} FROM unnest(:tasks) AS t (task) CROSS JOIN LATERAL (
         SELECT * FROM outlast_jobs o
         WHERE o.position IS NOT NULL AND o.stream IS NULL AND o.solo <= 0 AND o.task = t.task COLLATE "C"
           AND (:queue::text IS NULL OR o.queue = :queue)
         ORDER BY o.task, o.queue, (-o.priority), o.position OFFSET 0) o
     WHERE :part IS NULL OR :part = 'line')
    UNION ALL
    (SELECT o.id, {o.columns} FROM unnest(:tasks) AS t (task) CROSS JOIN LATERAL (
         SELECT * FROM outlast_jobs o
         WHERE o.position IS NOT NULL AND o.stream IS NOT NULL AND o.solo <= 0 AND o.task = t.task COLLATE "C"
           AND (:queue IS NULL OR o.queue = :queue)
         ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) OFFSET 0) o
     WHERE :part IS NULL OR :part = 'streams')
    UNION ALL
    (SELECT id, {columns} FROM outlast_jobs
     WHERE state = 'queued' AND position IS NULL AND solo = 0 AND (:part IS NULL OR :part = 'timed')
       AND (:queue IS NULL OR queue = :queue)
     ORDER BY queue, run_at OFFSET 0)
    UNION ALL
    (SELECT id, {columns} FROM outlast_jobs
     WHERE state = 'queued' AND solo > 0 AND (:part IS NULL OR :part = 'suspects')
     ORDER BY task, queue, stream, (-priority), position OFFSET 0)) j
WHERE id <= :last AND {chosen}
ORDER BY id DESC LIMIT :limit

-- name: queued_more
-- Show whether the queue, or the part of it that is asked for, has :rows rows or more that `queued` would read,
-- counted up to that number over all the index ranges that `queued` reads.
SELECT count(*) >= :rows AS is_long FROM (
    SELECT FROM (
        (SELECT FROM outlast_jobs
         WHERE position IS NOT NULL AND stream IS NULL AND solo <= 0 AND :tasks::text[] IS NULL
           AND (:part::text IS NULL OR :part = 'line')
         ORDER BY task, queue, (-priority), position LIMIT :rows::bigint)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE position IS NOT NULL AND stream IS NOT NULL AND solo <= 0 AND :tasks IS NULL AND (:part IS NULL OR :part = 'streams')
         ORDER BY task, queue, stream, coalesce(aged, position) LIMIT :rows)
        UNION ALL
        (SELECT FROM unnest(:tasks) AS t (task) CROSS JOIN LATERAL (
             SELECT FROM outlast_jobs o
             WHERE o.position IS NOT NULL AND o.stream IS NULL AND o.solo <= 0 AND o.task = t.task COLLATE "C"
               AND (:queue::text IS NULL OR o.queue = :queue)
             ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT :rows) o
         WHERE :part IS NULL OR :part = 'line' LIMIT :rows)
        UNION ALL
        (SELECT FROM unnest(:tasks) AS t (task) CROSS JOIN LATERAL (
             SELECT FROM outlast_jobs o
             WHERE o.position IS NOT NULL AND o.stream IS NOT NULL AND o.solo <= 0 AND o.task = t.task COLLATE "C"
               AND (:queue IS NULL OR o.queue = :queue)
             ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT :rows) o
         WHERE :part IS NULL OR :part = 'streams' LIMIT :rows)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE state = 'queued' AND position IS NULL AND solo = 0 AND (:part IS NULL OR :part = 'timed')
           AND (:queue IS NULL OR queue = :queue)
         ORDER BY queue, run_at LIMIT :rows)
        UNION ALL
        (SELECT FROM outlast_jobs
         WHERE state = 'queued' AND solo > 0 AND (:part IS NULL OR :part = 'suspects')
         ORDER BY task, queue, stream, (-priority), position LIMIT :rows)) parts
    LIMIT :rows) c
