-- Keep where a running attempt is. Guarded as outlast_progress_v1 is: the job's row is locked by (id, token, running) and
-- never waited for, so that a late worker changes nothing, and an end or a reap that holds the row is not held up.
WITH locked AS MATERIALIZED (
    SELECT j.id FROM outlast_jobs j
    WHERE j.id = $1::bigint AND j.token = $2::bigint AND j.state = 'running'
    FOR NO KEY UPDATE SKIP LOCKED)
UPDATE outlast_jobs j SET stack = $3, stack_at = clock_timestamp() FROM locked l WHERE j.id = l.id
RETURNING j.id
