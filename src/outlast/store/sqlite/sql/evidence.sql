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
