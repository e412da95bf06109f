-- Orphans: running jobs whose worker is not alive or has no row. They are read without the lock, decided on in Python,
-- and closed by (id, token, running) in one BEGIN IMMEDIATE ("end" of exchange.sql).
--
-- A lost or stopped worker never comes back and ids are never drawn twice, so while the token is the same, the job is
-- still an orphan. If another reaper was first, the token differs or the job is not running; then neither the evidence
-- nor the end finds a row.

-- name: orphans
SELECT j.id AS job_id, j.token, j.failures, j.losses, j.policy, j.cancel_requested, j.worker_id,
       w.name AS worker, w.host, j.progress, :now - j.checkpoint_at AS checkpoint_age, w.cause, j.solo, j.incident,
       coalesce(j.token <= w.begun, 1) AS began, j.task, j.queue, j.attempt_count AS attempts, w.begun = 0 AS handed_back
FROM outlast_jobs AS j LEFT JOIN outlast_workers AS w ON w.id = j.worker_id
WHERE j.worker_id IS NOT NULL AND (w.id IS NULL OR w.status NOT IN ('active', 'draining'))
ORDER BY j.started_at, j.token LIMIT :limit
-- name: facts
-- Read one attempt, even of a live worker: it is closed by its token, like an orphan. That worker's own end waits for
-- the commit and then finds no running row with its token.
SELECT j.id AS job_id, j.token, j.failures, j.losses, j.policy, j.cancel_requested, j.worker_id,
       w.name AS worker, w.host, j.progress, :now - j.checkpoint_at AS checkpoint_age, w.cause, j.solo, j.incident,
       coalesce(j.token <= w.begun, 1) AS began, j.task, j.queue, j.attempt_count AS attempts, w.begun = 0 AS handed_back
FROM outlast_jobs AS j LEFT JOIN outlast_workers AS w ON w.id = j.worker_id
WHERE j.id = :job_id AND j.token = :token AND j.state = 'running'
-- name: overdue
SELECT id, token, worker_id, :now - hard_deadline, policy FROM outlast_jobs
WHERE hard_deadline < :now - :slack AND state = 'running' ORDER BY hard_deadline LIMIT :limit
-- name: current
SELECT 1 WHERE NOT EXISTS (
    SELECT 1 FROM outlast_jobs
    WHERE id = ? AND (token = ? AND state IN ('running', 'completed')) IS NOT TRUE)
-- name: held_by
SELECT id AS job_id, token, failures, losses, solo, incident FROM outlast_jobs
WHERE worker_id = :id ORDER BY id
-- name: state
SELECT state FROM outlast_jobs WHERE id = ?
