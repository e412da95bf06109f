-- Bad ends, for people. Reads only, each by the index that it names and bounded by :rows, in one snapshot, without
-- locks.

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
