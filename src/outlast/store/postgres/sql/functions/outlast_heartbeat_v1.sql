-- Renew a lease and look for requests (cancel, drain); no row: the lease is lost. A plain update does not
-- conflict with the KEY SHARE of an exchange. It waits for a reap or a reconnect (FOR UPDATE) and then
-- checks the status again: a worker that was reaped meanwhile is not renewed.
--
-- Its commit waits for no disk and no standby (see outlast_commit_locally_v1). Should a crash or a failover
-- take the beat back, observers see another incarnation of the database and start over, and the worker's
-- next beat counts on from there.
--
-- And it does not wait for those that have locked the table of jobs, or wait for that (VACUUM FULL, CLUSTER,
-- most of ALTER TABLE): that may take longer than a lease, at whose end the worker would end healthy attempts.
-- Then this beat does not bring cancels; a later one does. ACCESS SHARE is what the look takes anyway.
CREATE FUNCTION outlast_heartbeat_v1(p_worker bigint, p_registration text)
RETURNS TABLE (job_id bigint, token bigint, drain boolean)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_drain boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE outlast_workers w
    SET beat = w.beat + 1, heartbeat_at = statement_timestamp(),
        lease_expires_at = statement_timestamp() + least(w.lease, 1e9) * interval '1 second'
    WHERE w.id = p_worker AND w.registration IS NOT DISTINCT FROM p_registration
      AND w.status IN ('active', 'draining')
    RETURNING w.drain_requested INTO v_drain;
    IF NOT FOUND THEN RETURN; END IF;
    BEGIN
        LOCK TABLE outlast_jobs IN ACCESS SHARE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, v_drain;
        RETURN;
    END;
    RETURN QUERY
    SELECT j.id, j.token, v_drain
    FROM (SELECT) AS me
    LEFT JOIN outlast_jobs j ON j.worker_id = p_worker AND j.cancel_requested;
END
$$;
