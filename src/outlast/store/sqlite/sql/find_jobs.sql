-- Find ids of jobs for a list, newest first, in bounded steps. A filter that is NULL lets every job pass.
--
-- Queued, running and dead jobs are found by indexes that hold only these: among ten million finished jobs there may be
-- none. Each part of the queue is read whole by its index, and keeps no more ids than are asked for (an inner LIMIT
-- without its own ORDER BY would make SQLite sort all of them). The tenant is in no index, so a filter by tenant reads
-- the rows. All other states are walked by id, and dead jobs down to the row that "…floor" has found.

-- name: all
-- An outer ORDER BY would sort all rows; the inner one survives, since it has a LIMIT.
SELECT id FROM (
    SELECT id, {columns}, state, position, stream, solo FROM outlast_jobs
    WHERE id <= :last ORDER BY id DESC LIMIT :rows)
WHERE {chosen} AND (:state IS NULL OR state = :state)
  AND (:part IS NULL
       OR :part = CASE WHEN solo > 0 THEN 'suspects' WHEN position IS NULL THEN 'timed'
                         WHEN stream IS NULL THEN 'line' ELSE 'streams' END)
LIMIT :limit
-- name: label
SELECT j.id FROM outlast_labels AS l INDEXED BY outlast_labels_name
CROSS JOIN outlast_jobs AS j
WHERE l.label = :label AND l.job_id <= :last AND l.job_id >= :floor AND j.id = l.job_id
  AND {j.chosen} AND (:state IS NULL OR j.state = :state)
  AND (:fingerprint IS NULL OR j.fingerprint = :fingerprint)
  AND (:worker_id IS NULL OR j.worker_id = :worker_id)
  AND (:part IS NULL
       OR :part = CASE WHEN j.solo > 0 THEN 'suspects' WHEN j.position IS NULL THEN 'timed'
                         WHEN j.stream IS NULL THEN 'line' ELSE 'streams' END)
ORDER BY l.job_id DESC LIMIT :limit
-- name: running
SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_worker
WHERE worker_id IS NOT NULL AND id <= :last AND (:worker_id IS NULL OR worker_id = :worker_id) AND {chosen}
ORDER BY id DESC LIMIT :limit
-- name: blocked
SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_blocked
WHERE state = 'blocked' AND id <= :last AND {chosen}
ORDER BY id DESC LIMIT :limit
-- name: queued
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_line
    WHERE position IS NOT NULL AND stream IS NULL AND solo <= 0 AND id <= :last AND (:part IS NULL OR :part = 'line')
      AND (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
    ORDER BY id DESC LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_stream
    WHERE position IS NOT NULL AND stream IS NOT NULL AND solo <= 0 AND id <= :last AND (:part IS NULL OR :part = 'streams')
      AND (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
    ORDER BY id DESC LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_due
    WHERE state = 'queued' AND position IS NULL AND solo = 0 AND id <= :last
      AND (:part IS NULL OR :part = 'timed')
      AND (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
    ORDER BY id DESC LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_suspect
    WHERE state = 'queued' AND solo > 0 AND id <= :last AND (:part IS NULL OR :part = 'suspects')
      AND (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
    ORDER BY id DESC LIMIT :limit)
ORDER BY id DESC LIMIT :limit
-- name: queued_more
SELECT count(*) >= :rows AS is_long FROM (
    SELECT * FROM (SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_line
                   WHERE position IS NOT NULL AND stream IS NULL AND solo <= 0 AND (:part IS NULL OR :part = 'line') LIMIT :rows)
    UNION ALL
    SELECT * FROM (SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_stream
                   WHERE position IS NOT NULL AND stream IS NOT NULL AND solo <= 0 AND (:part IS NULL OR :part = 'streams') LIMIT :rows)
    UNION ALL
    SELECT * FROM (SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_due
                   WHERE state = 'queued' AND position IS NULL AND solo = 0
                     AND (:part IS NULL OR :part = 'timed') LIMIT :rows)
    UNION ALL
    SELECT * FROM (SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_suspect
                   WHERE state = 'queued' AND solo > 0 AND (:part IS NULL OR :part = 'suspects')
                   LIMIT :rows)
    LIMIT :rows)
