-- Delete jobs that died $3 seconds ago, with their attempts, oldest first, from the end $2 on (prune_jobs.sql): only for
-- workers that were told how long dead jobs are kept. Rows that are locked are passed over; a job that was requeued
-- meanwhile is no longer dead when it is checked again, and stays.
WITH old AS MATERIALIZED (
    SELECT id, ended_at AS at FROM outlast_jobs
    WHERE state = 'dead'
      AND ended_at < statement_timestamp() - least($3::float8, 1e9) * interval '1 second'
      AND ended_at >= to_timestamp($2::float8)
    ORDER BY ended_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
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
