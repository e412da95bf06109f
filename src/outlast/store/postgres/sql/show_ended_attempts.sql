-- Ended attempts with tokens below $1 and not below $2, newest first, without their crash reports. $3 to
-- $5: outcomes, worker and tenant; one that is not set is NULL. $6: how many. Reads only. The limit inside
-- the look at the job leaves no plan that begins with all jobs of a tenant.
SELECT a.token, a.job_id, a.number, a.outcome, a.charge,
       extract(epoch FROM a.started_at)::float8 AS started_at,
       extract(epoch FROM a.ended_at)::float8 AS ended_at, a.worker_id, a.worker, a.host,
       left(a.message, 2000) AS message, a.repeats, j.task, j.queue, j.tenant
FROM outlast_attempts a
LEFT JOIN LATERAL (
    SELECT o.task, o.queue, o.tenant FROM outlast_jobs o WHERE o.id = a.job_id LIMIT 1) j ON true
WHERE a.token < $1 AND a.token >= $2::bigint
  AND ($3::text[] IS NULL OR a.outcome = ANY ($3)) AND ($4::bigint IS NULL OR a.worker_id = $4)
  AND ($5::text IS NULL OR j.tenant = $5)
ORDER BY a.token DESC LIMIT $6
