-- Delete workers that have been gone for $1 seconds and hold no running job, at most $2. A gone worker never claims
-- again (its exchange wants an active row), so none can appear while this looks. And rows of schedules, at most $2,
-- that no code has declared for $3 seconds (what a person has paused stays so), or that were deleted then; one that is declared or put just then is locked.
-- And what people did more than $4 seconds ago, at most $2, except what is under way.
WITH old AS MATERIALIZED (
    SELECT w.id FROM outlast_workers w
    WHERE w.status IN ('stopped', 'lost')
      AND w.stopped_at < statement_timestamp() - least($1::float8, 1e9) * interval '1 second'
      AND NOT EXISTS (SELECT FROM outlast_jobs j WHERE j.worker_id = w.id)
    ORDER BY w.stopped_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM outlast_workers w USING old o WHERE w.id = o.id RETURNING w.id
), undeclared AS (
    DELETE FROM outlast_schedules s USING (
        SELECT d.name FROM outlast_schedules d
        WHERE d.declared_at < extract(epoch FROM statement_timestamp()) - $3::float8
          AND (NOT d.paused OR d.origin = 'deleted')
        ORDER BY d.declared_at LIMIT $2::integer FOR UPDATE SKIP LOCKED) u
    WHERE s.name = u.name
), forgotten AS (
    DELETE FROM outlast_actions a USING (
        SELECT r.id FROM outlast_actions r
        WHERE r.state <> 'running' AND r.at < statement_timestamp() - $4::float8 * interval '1 second'
        ORDER BY r.id LIMIT $2::integer FOR UPDATE SKIP LOCKED) f
    WHERE a.id = f.id)
SELECT count(*) FROM gone
