-- Bad ends, for people: dead jobs in groups, ended attempts, suspects. Reads only.

-- name: ended
-- List ended attempts with tokens below :before and not below :floor, newest first, without their crash reports. A
-- filter that is NULL lets every attempt pass. The LIMIT in the lookup of the job rules out plans that begin with all
-- jobs of a tenant.
SELECT a.token, a.job_id, a.number, a.outcome, a.charge,
       a.started_at, a.ended_at, a.worker_id, a.worker, a.host,
       left(a.message, 2000) AS message, a.repeats, j.task, j.queue, j.tenant
FROM outlast_attempts a
LEFT JOIN LATERAL (
    SELECT o.task, o.queue, o.tenant FROM outlast_jobs o WHERE o.id = a.job_id LIMIT 1) j ON true
WHERE a.token < :before AND a.token >= :floor::bigint
  AND (:outcomes::text[] IS NULL OR a.outcome = ANY (:outcomes)) AND (:worker_id::bigint IS NULL OR a.worker_id = :worker_id)
  AND (:tenant::text IS NULL OR j.tenant = :tenant)
ORDER BY a.token DESC LIMIT :limit
