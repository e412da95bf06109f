-- Delete jobs that died $1 seconds ago, with their attempts, oldest first: only for workers that were told how
-- long dead jobs are kept. Rows that are locked are left for the next batch; a job that was requeued
-- meanwhile is no longer dead when it is checked again, and stays.
WITH old AS MATERIALIZED (
    SELECT id FROM outlast_jobs
    WHERE state = 'dead'
      AND ended_at < statement_timestamp() - least($1::float8, 1e9) * interval '1 second'
    ORDER BY ended_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), evidence AS (
    DELETE FROM outlast_attempts a USING old o WHERE a.job_id = o.id
), labels AS (
    DELETE FROM outlast_labels l USING old o WHERE l.job_id = o.id
), logs AS (
    DELETE FROM outlast_logs g USING old oo WHERE g.job_id = oo.id
), gone AS (
    DELETE FROM outlast_jobs j USING old o WHERE j.id = o.id RETURNING j.id)
SELECT count(*) FROM gone
