-- Complete an attempt inside the caller's own transaction. Guarded by (id, token, running): under
-- READ COMMITTED an attempt that was closed or taken over while this waited is checked again and
-- not touched. The worker's exchange and a reaper skip the row until the caller commits.
-- A job that is kept for no time (keep = 0, which never changes) is deleted instead, under the same guard: of the two
-- halves only one ever finds the row.
WITH done AS (
    UPDATE outlast_jobs
    SET state = 'completed', ended_at = clock_timestamp(), result = $3, completed_by = worker_id,
        prune_at = CASE WHEN keep IS NOT NULL
                        THEN clock_timestamp() + least(keep, 1e9) * interval '1 second' END,
        worker_id = NULL, hard_deadline = NULL
    WHERE id = $1 AND token = $2 AND state = 'running' AND (keep IS NULL OR keep > 0)
    RETURNING id
), gone AS (
    DELETE FROM outlast_jobs
    WHERE id = $1 AND token = $2 AND state = 'running' AND keep <= 0
    RETURNING id
), evidence AS (
    DELETE FROM outlast_attempts a USING gone g WHERE a.job_id = g.id
), labels AS (
    DELETE FROM outlast_labels l USING gone g WHERE l.job_id = g.id
), logs AS (
    DELETE FROM outlast_logs g USING gone gg WHERE g.job_id = gg.id
)
SELECT id FROM done UNION ALL SELECT id FROM gone
