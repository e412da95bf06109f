-- Jobs as people read them, newest id first. Reads only.
SELECT j.id, j.task, j.queue, j.state, j.priority, j.attempt_count, j.failures, j.losses, j.token,
       j.state = 'queued' AND j.position IS NULL AND j.run_at > statement_timestamp() AS waiting,
       j.args, j.policy, extract(epoch FROM j.run_at)::float8 AS run_at,
       extract(epoch FROM j.enqueued_at)::float8 AS enqueued_at,
       coalesce(j.worker_id, j.completed_by) AS worker_id, w.name AS worker,
       w.host, j.key, j.tenant, extract(epoch FROM j.started_at)::float8 AS started_at,
       extract(epoch FROM j.ended_at)::float8 AS ended_at, j.cancel_requested,
       extract(epoch FROM j.hard_deadline)::float8 AS hard_deadline, j.progress, j.checkpoint,
       extract(epoch FROM j.checkpoint_at)::float8 AS checkpoint_at, j.result,
       j.solo, j.incident, j.cohort
FROM outlast_jobs j
LEFT JOIN outlast_workers w ON w.id = coalesce(j.worker_id, j.completed_by)
WHERE ($1::text IS NULL OR j.state = $1)
  AND ($2::text IS NULL OR j.queue = $2)
  AND ($3::text IS NULL OR j.task = $3)
  AND ($4::text IS NULL OR j.tenant = $4)
  AND ($5::bigint IS NULL OR j.id < $5)
ORDER BY j.id DESC LIMIT $6::integer
