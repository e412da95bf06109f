-- Who runs what, and what its task last reported, up to $1 jobs, by the index of running jobs. Reads only.
SELECT j.id AS job_id, j.worker_id, j.progress
FROM outlast_jobs j WHERE j.worker_id IS NOT NULL ORDER BY j.worker_id LIMIT $1::integer
