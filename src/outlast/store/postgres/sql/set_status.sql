-- Move a worker to draining or stopped. FOR UPDATE waits for an exchange under way; a later one
-- finds the new status and claims nothing. Saying the same twice is not a loss of the lease.
WITH me AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = $1 AND registration IS NOT DISTINCT FROM $3 AND (status IN ('active', 'draining') OR status = $2::text) FOR UPDATE)
UPDATE outlast_workers w
SET status = $2::text,
    stopped_at = CASE WHEN $2::text = 'stopped' THEN coalesce(w.stopped_at, clock_timestamp()) END
FROM me WHERE w.id = me.id
RETURNING w.id
