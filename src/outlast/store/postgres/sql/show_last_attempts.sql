-- Jobs as show_jobs.sql lists them, newest id first, each with the columns of its last closed attempt,
-- which are NULL where none was closed. Reads only. The attempt is looked up for the listed jobs alone,
-- by the index on (job_id, number): numbers rise with tokens. The worker as in
-- show_jobs.sql.
SELECT j.id, j.task, j.queue, j.state, j.priority, j.attempt_count, j.failures, j.losses, j.token,
       j.state = 'queued' AND j.position IS NULL AND j.run_at > statement_timestamp() AS waiting,
       CASE WHEN $2::integer IS NULL THEN j.args ELSE left(j.args, $2) END AS args, j.policy, extract(epoch FROM j.run_at)::float8 AS run_at,
       extract(epoch FROM j.enqueued_at)::float8 AS enqueued_at, extract(epoch FROM j.requeued_at)::float8 AS requeued_at,
       extract(epoch FROM j.expires_at)::float8 AS expires_at,
       coalesce(j.worker_id, j.completed_by) AS worker_id, w.name AS worker,
       w.host, j.key, j.tenant, extract(epoch FROM j.started_at)::float8 AS started_at,
       extract(epoch FROM j.ended_at)::float8 AS ended_at, j.cancel_requested,
       extract(epoch FROM j.hard_deadline)::float8 AS hard_deadline, j.progress,
       CASE WHEN $2 IS NULL THEN j.checkpoint END AS checkpoint,
       extract(epoch FROM j.checkpoint_at)::float8 AS checkpoint_at,
       CASE WHEN $2 IS NULL THEN j.result END AS result,
       j.solo, j.incident, j.cohort, extract(epoch FROM j.stack_at)::float8 AS stack_at, NULL AS stack,
       a.job_id, a.token, a.number, a.outcome, a.charge, extract(epoch FROM a.started_at)::float8 AS started_at,
       extract(epoch FROM a.ended_at)::float8 AS ended_at, a.worker_id, a.worker, a.host, a.pid, a.message,
       a.progress, a.checkpoint_age, a.crash, a.repeats, a.dropped
FROM outlast_jobs j
LEFT JOIN LATERAL (
    SELECT o.name, o.host FROM outlast_workers o WHERE o.id = coalesce(j.worker_id, j.completed_by) LIMIT 1) w ON true
LEFT JOIN LATERAL (
    SELECT * FROM outlast_attempts WHERE job_id = j.id
    ORDER BY number DESC, token DESC LIMIT 1) a ON true
WHERE j.id = ANY($1::bigint[])
ORDER BY j.id DESC
