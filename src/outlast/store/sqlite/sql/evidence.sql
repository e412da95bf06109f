-- Bad ends, for people. Reads only, each by the index that it names and bounded by :rows, in one snapshot, without
-- locks.

-- name: dead_groups
-- The index holds all these columns, so no row of a job is read.
SELECT fingerprint, count(*) AS number, max(id) AS newest, min(ended_at) AS first_at, max(ended_at) AS last_at,
       sum(count(*)) OVER () AS looked_at FROM (
    SELECT id, fingerprint, ended_at FROM outlast_jobs INDEXED BY outlast_jobs_dead
    WHERE state = 'dead' ORDER BY id DESC LIMIT :rows)
GROUP BY fingerprint ORDER BY max(ended_at) DESC, max(id) DESC LIMIT :groups
-- name: dead_groups_among
WITH looked AS MATERIALIZED (
    SELECT id, fingerprint, ended_at, queue, task, tenant FROM outlast_jobs INDEXED BY outlast_jobs_dead
    WHERE state = 'dead' ORDER BY id DESC LIMIT :rows)
SELECT fingerprint, count(*) AS number, max(id) AS newest, min(ended_at) AS first_at, max(ended_at) AS last_at,
       (SELECT count(*) FROM looked) AS looked_at
FROM looked
WHERE (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
  AND (:tenant IS NULL OR tenant = :tenant)
GROUP BY fingerprint ORDER BY max(ended_at) DESC, max(id) DESC LIMIT :groups
-- name: ended_floor
SELECT min(token) AS token, count(*) AS number, min(ended_at) AS back_to FROM (
    SELECT token, ended_at FROM outlast_attempts WHERE token < :before ORDER BY token DESC LIMIT :rows)
-- name: ended
SELECT a.token, a.job_id, a.number, a.outcome, a.charge, a.started_at, a.ended_at, a.worker_id,
       a.worker, a.host, substr(a.message, 1, 2000) AS message, a.repeats, j.task, j.queue, j.tenant
FROM outlast_attempts AS a LEFT JOIN outlast_jobs AS j ON j.id = a.job_id
WHERE a.token < :before AND a.token >= :floor
  AND (:outcomes IS NULL OR a.outcome IN (SELECT value FROM json_each(:outcomes)))
  AND (:worker_id IS NULL OR a.worker_id = :worker_id) AND (:tenant IS NULL OR j.tenant = :tenant)
ORDER BY a.token DESC LIMIT :limit
-- name: last_ends
-- By the index on (job_id, number), as in jobs_of of inspect.sql, without large columns.
SELECT a.token, a.job_id, a.number, a.outcome, a.charge, a.started_at, a.ended_at, a.worker_id,
       a.worker, a.host, substr(a.message, 1, 2000) AS message, a.repeats
FROM json_each(:ids) AS wanted CROSS JOIN outlast_attempts AS a
WHERE a.token = (SELECT l.token FROM outlast_attempts AS l WHERE l.job_id = wanted.value
                 ORDER BY l.number DESC, l.token DESC LIMIT 1)
-- name: causes
SELECT outcome, count(*) AS number, sum(ended_at > :now - 3600) AS hour, max(ended_at) AS last_at FROM (
    SELECT job_id, outcome, ended_at FROM outlast_attempts ORDER BY token DESC LIMIT :rows) AS a
WHERE :tenant IS NULL OR (SELECT tenant FROM outlast_jobs WHERE id = a.job_id) = :tenant
GROUP BY outcome ORDER BY 2 DESC, 1
-- name: suspects
SELECT incident, cohort, id AS job_id, task, queue, state, solo, losses, tenant
FROM outlast_jobs INDEXED BY outlast_jobs_incident
WHERE incident IS NOT NULL ORDER BY incident DESC LIMIT :rows
