-- Renew a lease and look for requests (cancel, drain), in one statement. A plain update does not conflict
-- with the KEY SHARE of an exchange. It waits for a reap or a reconnect (FOR UPDATE) and then checks
-- the status again: a worker that was reaped meanwhile is not renewed.
--
-- It waits for no synchronous standby, as nothing does that writes a worker's row: a trigger sees to that
-- and says why it is right (migration_0004_orphans.sql). Should a failover take the beat back, observers
-- see another incarnation of the database and start anew, and the worker's next beat counts on from there.
WITH renewed AS (
    UPDATE outlast_workers
    SET beat = beat + 1, heartbeat_at = statement_timestamp(),
        lease_expires_at = statement_timestamp() + least(lease, 1e9) * interval '1 second'
    WHERE id = $1 AND registration IS NOT DISTINCT FROM $2 AND status IN ('active', 'draining')
    RETURNING id, drain_requested)
SELECT j.id, j.token, r.drain_requested
FROM renewed r
LEFT JOIN outlast_jobs j ON j.worker_id = r.id AND j.worker_id IS NOT NULL AND j.cancel_requested
