-- Complete an attempt inside the caller's own transaction. Guarded by (id, token, running): under
-- READ COMMITTED an attempt that was closed or taken over while this waited is checked again and
-- not touched. The worker's exchange and a reaper skip the row until the caller commits.
-- A job that is kept for no time (keep = 0, which never changes) is left: lock_unkept.sql.
UPDATE outlast_jobs
SET state = 'completed', ended_at = clock_timestamp(), result = $3, completed_by = worker_id,
    prune_at = CASE WHEN keep IS NOT NULL
                    THEN clock_timestamp() + least(keep, 1e9) * interval '1 second' END,
    worker_id = NULL, hard_deadline = NULL
WHERE id = $1 AND token = $2 AND state = 'running' AND (keep IS NULL OR keep > 0)
RETURNING id
