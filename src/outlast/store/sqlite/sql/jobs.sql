-- Writes about jobs outside the exchange. Writes about an attempt are guarded by (id, token, running) under the write
-- lock, so a late worker's write finds no row; postgres/sql/functions/ argues about each (outlast_checkpoint_v1.sql and
-- the like).

-- name: draw
-- Draw ids, positions and tokens. A number drawn in a transaction that rolls back is drawn again by the next one: no
-- other transaction has seen it. A committed number is never drawn again, since nothing lowers a value.
UPDATE outlast_sequences SET value = value + ? WHERE name = ? RETURNING value + 0
-- name: draw_places
UPDATE outlast_sequences SET value = value + ? WHERE name IN ('job', 'position')
RETURNING name = 'job', value + 0
-- name: draw_tokens
-- Tokens are also above the time of day in microseconds, and no store draws a million a second: so every token drawn
-- in another file, of which this one is an older copy, was smaller.
UPDATE outlast_sequences SET value = max(value, CAST(:now * 1000000 AS INTEGER)) + :count WHERE name = 'token'
RETURNING value + 0

-- name: complete
-- Complete an attempt inside the caller's own transaction (complete_in). After a reclaim no row is found, and the
-- caller rolls back its own writes; a reclaim that comes meanwhile waits for the write lock and finds the job
-- completed. This sets the same columns as "complete" of the exchange.
UPDATE outlast_jobs
SET state = 'completed', completed_by = worker_id, worker_id = NULL, hard_deadline = NULL,
    ended_at = :now, result = :result
WHERE id = :job_id AND token = :token AND state = 'running' AND (keep IS NULL OR keep > 0 OR awaited)
-- name: is_kept
-- Return false if the attempt is current and its job is kept for no time (keep = 0): then the job is deleted instead.
SELECT NOT EXISTS (SELECT 1 FROM outlast_jobs
                   WHERE id = :job_id AND token = :token AND state = 'running' AND keep <= 0 AND NOT awaited)

-- name: checkpoint
UPDATE outlast_jobs
SET losses = :losses, checkpoint = :value, checkpoint_number = :number, checkpoint_at = :now
WHERE id = :job_id AND token = :token AND state = 'running' AND checkpoint_number < :number
-- name: is_current
SELECT 1 FROM outlast_jobs WHERE id = ? AND token = ? AND state = 'running'
-- name: progress
-- The deadline only rises: a reaper that has read the earlier one may still close the attempt by its token.
UPDATE outlast_jobs
SET progress = :progress, hard_deadline = max(hard_deadline, started_at + timeout + :still)
WHERE id = :job_id AND token = :token AND state = 'running'

-- name: keep_logs
INSERT INTO outlast_logs (token, job_id, number, printed, lines)
SELECT token, id, :number, :printed, :lines FROM outlast_jobs
WHERE id = :job_id AND token = :token AND state = 'running'
ON CONFLICT (token) DO UPDATE SET printed = excluded.printed, lines = excluded.lines
WHERE printed <= excluded.printed
-- name: trim_logs
DELETE FROM outlast_logs WHERE token IN (
    SELECT token FROM outlast_logs WHERE job_id = :job_id ORDER BY token DESC LIMIT -1 OFFSET :kept)

-- name: ask_stack
-- `ask_stack` of postgres/sql/jobs.sql argues why no request is lost.
UPDATE outlast_workers SET stacks = :then
WHERE status IN ('active', 'draining') AND stacks = :seen AND id = (
    SELECT worker_id FROM outlast_jobs WHERE id = :job_id AND token = :token AND state = 'running')
RETURNING id
-- name: keep_stack
UPDATE outlast_jobs SET stack = :stack, stack_at = :now
WHERE id = :job_id AND token = :token AND state = 'running'

-- name: completed_by
-- Answer a guarded write that found no row, and record refusals, in the transaction of that write.
SELECT 1 FROM outlast_jobs WHERE id = ? AND token = ? AND state = 'completed'
-- name: is_there
SELECT 1 FROM outlast_jobs WHERE id = ?
-- name: closed_as
SELECT 1 FROM outlast_attempts WHERE token = ? AND job_id = ? AND outcome = ?
-- name: ended_at
SELECT coalesce(
    (SELECT ended_at FROM outlast_attempts WHERE token = :token AND job_id = :job_id),
    (SELECT ended_at FROM outlast_jobs WHERE id = :job_id AND token = :token))
-- name: refuse
INSERT INTO outlast_refusals (job_id, token, verb, at, late_by) VALUES (?, ?, ?, ?, ?)
-- name: forget_refusals
DELETE FROM outlast_refusals WHERE id <= (SELECT max(id) FROM outlast_refusals) - ?
