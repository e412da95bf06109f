-- Closed attempts of a range of jobs, the last one included (NULL: to the end). Reads only.
SELECT job_id, token, number, outcome, charge, extract(epoch FROM started_at)::float8 AS started_at,
       extract(epoch FROM ended_at)::float8 AS ended_at, crash IS NOT NULL AS has_crash, worker_id,
       dropped
FROM outlast_attempts
WHERE job_id > $1 AND ($2::bigint IS NULL OR job_id <= $2)
ORDER BY job_id, token
