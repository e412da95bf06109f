-- How many jobs of a queue want a worker: as postgres/sql/functions/outlast_wanted_v1.sql, which says what
-- counts. Each statement goes by the index that it names and stops at :most rows. Reads only, in one snapshot.

-- name: paused
SELECT kind, name FROM outlast_pauses
-- name: workers
-- Those that are there, and the last that have gone.
SELECT CAST(queues AS TEXT) AS queues, CAST(tasks AS TEXT) AS tasks, status IN ('active', 'draining') AS lives FROM (
    SELECT * FROM (SELECT * FROM outlast_workers WHERE status IN ('active', 'draining') LIMIT :most)
    UNION ALL
    SELECT * FROM (SELECT * FROM outlast_workers ORDER BY id DESC LIMIT 1000))
-- name: tasks
WITH RECURSIVE t (task, place) AS (
    SELECT (SELECT task FROM outlast_jobs INDEXED BY outlast_jobs_line
            WHERE position IS NOT NULL ORDER BY task LIMIT 1), 1
    UNION ALL
    SELECT (SELECT n.task FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
            WHERE n.position IS NOT NULL AND n.task > t.task ORDER BY n.task LIMIT 1), t.place + 1
    FROM t WHERE t.task IS NOT NULL AND t.place < :tasks_max
)
SELECT task FROM t WHERE task IS NOT NULL
-- name: lined
SELECT count(*) AS number FROM (
    SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_line
    WHERE position IS NOT NULL AND task = :task AND queue = :queue LIMIT :most)
-- name: due
SELECT task, count(*) AS number FROM (
    SELECT task FROM outlast_jobs INDEXED BY outlast_jobs_due
    WHERE queue = :queue AND state = 'queued' AND position IS NULL AND solo = 0 AND run_at <= :now
    LIMIT :most)
GROUP BY task
-- name: suspects
SELECT task, count(*) AS number FROM (
    SELECT task, queue, run_at FROM outlast_jobs INDEXED BY outlast_jobs_suspect
    WHERE state = 'queued' AND solo > 0 LIMIT :most)
WHERE queue = :queue AND run_at <= :now GROUP BY task
-- name: running
SELECT count(*) AS number FROM (
    SELECT queue FROM outlast_jobs INDEXED BY outlast_jobs_worker
    WHERE worker_id IS NOT NULL LIMIT :most)
WHERE queue = :queue
