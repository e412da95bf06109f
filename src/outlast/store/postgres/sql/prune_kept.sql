-- Delete jobs that were to be kept for a time of their own (keep), which is over, with their attempts, at most $1, from
-- the time $2 on (prune_jobs.sql). Rows that are locked are passed over; a job that was requeued meanwhile has no such
-- time when it is checked again, and stays.
WITH old AS MATERIALIZED (
    SELECT id, prune_at AS at FROM outlast_jobs
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at <= statement_timestamp()
      AND prune_at >= to_timestamp($2::float8)
    ORDER BY prune_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), evidence AS (
    DELETE FROM outlast_attempts a USING old o WHERE a.job_id = o.id
), labels AS (
    DELETE FROM outlast_labels l USING old o WHERE l.job_id = o.id
), logs AS (
    DELETE FROM outlast_logs g USING old oo WHERE g.job_id = oo.id
), gone AS (
    DELETE FROM outlast_jobs j USING old o WHERE j.id = o.id RETURNING j.id)
SELECT (SELECT count(*) FROM gone) AS gone,
       (SELECT extract(epoch FROM max(at))::float8 - 0.001 FROM old) AS reached
