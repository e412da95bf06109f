-- Closed attempts of a range of jobs, the last one included (NULL: to the end). Reads only.
SELECT job_id, token, number, outcome, charge, extract(epoch FROM started_at)::float8 AS started_at,
       extract(epoch FROM ended_at)::float8 AS ended_at, crash IS NOT NULL AS has_crash, worker_id,
       dropped
FROM outlast_attempts
WHERE job_id > $1 AND job_id <= coalesce($2::bigint, 9223372036854775807)
ORDER BY job_id, token
