-- Delete jobs that completed or were cancelled some seconds ago, with their attempts, oldest first; those with a
-- time of their own: see prune_kept.sql. (The order names prune_at, which is NULL, since the index begins with it.)
-- Rows that are locked are left for the next batch; a cancelled job that was requeued meanwhile
-- has no end when it is checked again, and stays. Dead jobs are evidence: see discard.
WITH old AS MATERIALIZED (
    SELECT id FROM outlast_jobs
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at IS NULL
      AND ended_at < statement_timestamp() - least($1::float8, 1e9) * interval '1 second'
    ORDER BY prune_at, ended_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), evidence AS (
    DELETE FROM outlast_attempts a USING old o WHERE a.job_id = o.id
), labels AS (
    DELETE FROM outlast_labels l USING old o WHERE l.job_id = o.id
), logs AS (
    DELETE FROM outlast_logs g USING old oo WHERE g.job_id = oo.id
), gone AS (
    DELETE FROM outlast_jobs j USING old o WHERE j.id = o.id RETURNING j.id)
SELECT count(*) FROM gone
