-- Bad ends, for people: dead jobs in groups, ended attempts, suspects. Reads only.

-- name: ended
-- Ended attempts with tokens below :before and not below :floor, newest first, without their crash reports. A filter
-- that is NULL lets every attempt pass. Reads only. The LIMIT in the lookup of the job rules out plans that begin
-- with all jobs of a tenant.
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

-- name: last_ends
-- The last closed attempt of each of these jobs that has one, without large columns. Reads only. It is found by the
-- index on (job_id, number), as in `jobs_of` of inspect.sql.
SELECT a.token, a.job_id, a.number, a.outcome, a.charge,
       a.started_at, a.ended_at, a.worker_id, a.worker, a.host,
       left(a.message, 2000) AS message, a.repeats
FROM unnest(:ids::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
    SELECT * FROM outlast_attempts WHERE job_id = wanted.id
    ORDER BY number DESC, token DESC LIMIT 1) a

-- name: causes
-- Count the outcomes of the :rows newest attempts (by token): of one tenant's jobs, or of all (NULL). Reads only.
SELECT outcome, count(*) AS number,
       count(*) FILTER (WHERE ended_at > date_part('epoch', statement_timestamp()) - 3600) AS hour,
       max(ended_at) AS last_at
FROM (SELECT job_id, outcome, ended_at FROM outlast_attempts ORDER BY token DESC LIMIT :rows) a
WHERE :tenant::text IS NULL OR (SELECT j.tenant FROM outlast_jobs j WHERE j.id = a.job_id) = :tenant
GROUP BY outcome ORDER BY 2 DESC, 1
