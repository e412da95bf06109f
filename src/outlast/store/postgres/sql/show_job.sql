-- One job as people read it: with its worker, or the one that completed it. $2: characters at which
-- arguments, checkpoint and result are cut; NULL: they are whole. Reads only.
SELECT j.id, j.task, j.queue, j.state, j.priority, j.attempt_count, j.failures, j.losses, j.token,
       j.state = 'queued' AND j.position IS NULL AND j.run_at > statement_timestamp() AS waiting,
       CASE WHEN $2::integer IS NULL THEN j.args ELSE left(j.args, $2) END AS args, j.policy, extract(epoch FROM j.run_at)::float8 AS run_at,
       extract(epoch FROM j.enqueued_at)::float8 AS enqueued_at, extract(epoch FROM j.requeued_at)::float8 AS requeued_at,
       extract(epoch FROM j.expires_at)::float8 AS expires_at,
       coalesce(j.worker_id, j.completed_by) AS worker_id, w.name AS worker,
       w.host, j.key, j.tenant, extract(epoch FROM j.started_at)::float8 AS started_at,
       extract(epoch FROM j.ended_at)::float8 AS ended_at, j.cancel_requested,
       extract(epoch FROM j.hard_deadline)::float8 AS hard_deadline, j.progress,
       CASE WHEN $2 IS NULL THEN j.checkpoint ELSE left(j.checkpoint, $2) END AS checkpoint,
       extract(epoch FROM j.checkpoint_at)::float8 AS checkpoint_at,
       CASE WHEN $2 IS NULL THEN j.result ELSE left(j.result, $2) END AS result,
       j.solo, j.incident, j.cohort, extract(epoch FROM j.stack_at)::float8 AS stack_at,
       left(j.stack, 131072) AS stack
FROM outlast_jobs j
LEFT JOIN outlast_workers w ON w.id = coalesce(j.worker_id, j.completed_by)
WHERE j.id = $1
