-- Writes about jobs outside the exchange. functions/NAME.sql argues why a call of a function is right against a
-- concurrent claim, reap and late worker.

-- name: complete
-- Complete an attempt inside the caller's own transaction. Guarded by (id, token, running): if the attempt was closed
-- or taken over while this waited for the row, READ COMMITTED re-checks the row and does not touch it. The worker's
-- exchange and a reaper skip the row until the caller commits. A job that is kept for no time (keep = 0, which never
-- changes) is left to `lock_unkept`.
WITH done AS (
    UPDATE outlast_jobs
    SET state = 'completed', ended_at = date_part('epoch', clock_timestamp()), result = $3, completed_by = worker_id,
        worker_id = NULL, hard_deadline = NULL
    WHERE id = $1 AND token = $2 AND state = 'running' AND (keep IS NULL OR keep > 0 OR awaited)
    RETURNING id, stream IS NOT NULL OR awaited AS noted)
SELECT id, CASE WHEN noted THEN outlast_note_v1(ARRAY[id], p_ran => true, p_had_ended => false) END FROM done

-- name: lock_unkept
-- Lock the job of an attempt if it is kept for no time (keep = 0), for the next statement. Guarded like `complete`, and
-- waits for the row like it. Two statements, so that the second sees what was committed while the first waited, such as
-- lines that the attempt's worker has just written.
SELECT id FROM outlast_jobs WHERE id = $1 AND token = $2 AND state = 'running' AND keep <= 0 AND NOT awaited FOR UPDATE

-- name: complete_away
SELECT outlast_complete_away_v1(ARRAY[$1::bigint], ARRAY[$2::bigint]) IS NOT NULL

-- name: expire
SELECT outlast_expire_v1($1)

-- name: checkpoint
SELECT job_id, token, answer FROM outlast_checkpoint_v1(
    $1::text::bigint[], $2::text::bigint[], $3::text::integer[], $4, $5::text::integer[], $6)

-- name: progress
SELECT job_id, token, answer FROM outlast_progress_v1($1::text::bigint[], $2::text::bigint[], $3, $4::text::float8[], $5)

-- name: keep_logs
SELECT * FROM outlast_keep_logs_v1(
    $1::text::bigint[], $2::text::bigint[], $3::text::integer[], $4::text::integer[], $5, $6)

-- name: ask_stack
-- Ask the worker that runs this attempt for its stack: :then, which is :seen with one more request, replaces the
-- requests on the worker's row if these are still the ones that the caller has read. So if two callers ask at once, one
-- has to read again, and neither removes the other's request. The worker is not asked if it was reaped, or if the
-- attempt has ended or its job was claimed again. The update does not conflict with the KEY SHARE of an exchange; it
-- waits for a beat, a reap or a reconnect, and then re-checks the row.
WITH asked AS (
    UPDATE outlast_workers w SET stacks = :then
    FROM outlast_jobs j
    WHERE j.id = :job_id::bigint AND j.token = :token::bigint AND j.state = 'running' AND w.id = j.worker_id
      AND w.status IN ('active', 'draining') AND w.stacks = :seen
    RETURNING w.id)
SELECT id, CASE WHEN :notify::boolean THEN pg_notify(outlast_channel_v1(), 'stack:' || id::text)::text END FROM asked

-- name: keep_stack
-- Guarded like outlast_progress_v1: a late worker changes nothing, and an end or a reap that holds the row is not
-- delayed.
WITH locked AS MATERIALIZED (
    SELECT j.id FROM outlast_jobs j
    WHERE j.id = $1::bigint AND j.token = $2::bigint AND j.state = 'running'
    FOR NO KEY UPDATE SKIP LOCKED)
UPDATE outlast_jobs j SET stack = $3, stack_at = date_part('epoch', clock_timestamp()) FROM locked l WHERE j.id = l.id
RETURNING j.id
