-- The closed attempts of a job, in the order of their tokens. Reads only.
SELECT job_id, token, number, outcome, charge, extract(epoch FROM started_at)::float8 AS started_at,
       extract(epoch FROM ended_at)::float8 AS ended_at, worker_id, worker, host, pid, message,
       progress, checkpoint_age, crash, repeats, dropped
FROM outlast_attempts WHERE job_id = $1 ORDER BY token
