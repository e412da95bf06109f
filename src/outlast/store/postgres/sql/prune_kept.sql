-- Delete jobs that were to be kept for a time of their own (keep), which is over, with their attempts, at most $1.
-- Rows that are locked are left for the next batch; a job that was requeued meanwhile has no such time
-- when it is checked again, and stays.
WITH old AS MATERIALIZED (
    SELECT id FROM outlast_jobs
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at <= statement_timestamp()
    ORDER BY prune_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), evidence AS (
    DELETE FROM outlast_attempts a USING old o WHERE a.job_id = o.id
), labels AS (
    DELETE FROM outlast_labels l USING old o WHERE l.job_id = o.id
), logs AS (
    DELETE FROM outlast_logs g USING old oo WHERE g.job_id = oo.id
), gone AS (
    DELETE FROM outlast_jobs j USING old o WHERE j.id = o.id RETURNING j.id)
SELECT count(*) FROM gone
