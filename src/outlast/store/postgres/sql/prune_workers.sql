-- Delete workers that have been gone for $1 seconds and hold no running job, at most $2. A gone worker never claims
-- again (its exchange wants an active row), so none can appear while this looks.
WITH old AS MATERIALIZED (
    SELECT w.id FROM outlast_workers w
    WHERE w.status IN ('stopped', 'lost')
      AND w.stopped_at < statement_timestamp() - least($1::float8, 1e9) * interval '1 second'
      AND NOT EXISTS (SELECT FROM outlast_jobs j WHERE j.worker_id = w.id)
    ORDER BY w.stopped_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM outlast_workers w USING old o WHERE w.id = o.id RETURNING w.id)
SELECT count(*) FROM gone
