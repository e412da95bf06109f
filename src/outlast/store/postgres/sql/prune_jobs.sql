-- Delete jobs that completed or were cancelled some seconds ago, with their attempts, oldest first; those with a
-- time of their own: see prune_kept.sql. (The order names prune_at, which is NULL, since the index begins with it.)
-- Rows that are locked are passed over; a cancelled job that was requeued meanwhile
-- has no end when it is checked again, and stays. Dead jobs are evidence: see discard.
-- $2: from which end on it looks, in seconds since 1970: where the last batch stopped (reached), or -infinity. What was
-- deleted stays in the index until a vacuum may take it, and a look from the oldest walks over all of it. It is a hint
-- and nothing else: what is passed over is found by the next look from the oldest. Many jobs have the same end, and
-- a batch may stop among them: hence the millisecond.
WITH old AS MATERIALIZED (
    SELECT id, ended_at AS at FROM outlast_jobs
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at IS NULL
      AND ended_at < statement_timestamp() - least($3::float8, 1e9) * interval '1 second'
      AND ended_at >= to_timestamp($2::float8)
    ORDER BY prune_at, ended_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
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
