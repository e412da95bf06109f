-- Jobs by rising id, for the checker. Reads only, in the snapshot of its transaction.
SELECT j.id, j.state, j.attempt_count, j.failures, j.losses, j.policy, j.solo, j.token,
       extract(epoch FROM j.started_at)::float8 AS started_at,
       extract(epoch FROM j.ended_at)::float8 AS ended_at,
       j.worker_id, w.status AS worker_status, j.task, j.queue, j.tenant
FROM outlast_jobs j LEFT JOIN outlast_workers w ON w.id = j.worker_id
WHERE j.id > $1 ORDER BY j.id LIMIT $2::integer
