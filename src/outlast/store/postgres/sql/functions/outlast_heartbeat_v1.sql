-- Renew a lease, return requests (cancel, drain, stacks), and peek as outlast_peek_v1 does. If renewed is false, the
-- lease is lost. The beat is a plain update, which does not conflict with the KEY SHARE of an exchange. It waits for a
-- reap or a reconnect (FOR UPDATE) and then re-checks the status. Its commit waits for no disk and no standby
-- (outlast_commit_locally_v1).
--
-- After the update, this waits for no session that has locked a table that it reads, or that is queued for such a lock
-- (VACUUM FULL, CLUSTER, most of ALTER TABLE): that may take longer than a lease. Then this beat brings no cancels and
-- no peek; a later one does. (ACCESS SHARE is the lock that reading takes anyway.) If reading anything but the lease
-- fails, the beat does not fail either: the worker, left without a peek, asks for one by itself and reports the fault.
CREATE FUNCTION outlast_heartbeat_v1(
    p_worker bigint, p_registration text,
    OUT renewed boolean, OUT drain boolean, OUT stacks text, OUT cancels text,
    OUT drawn bigint, OUT next_due double precision, OUT next_tick double precision, OUT pauses text,
    OUT watches text, OUT neighbours text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE outlast_workers w
    SET beat = w.beat + 1, heartbeat_at = date_part('epoch', statement_timestamp()),
        lease_expires_at = date_part('epoch', statement_timestamp()) + least(w.lease, 1e9)
    WHERE w.id = p_worker AND w.registration IS NOT DISTINCT FROM p_registration
      AND w.status IN ('active', 'draining')
    RETURNING w.drain_requested, w.stacks INTO drain, stacks;
    renewed := FOUND;
    IF NOT renewed THEN RETURN; END IF;
    BEGIN
        LOCK TABLE outlast_jobs, outlast_schedules, outlast_pauses IN ACCESS SHARE MODE NOWAIT;
        SELECT json_agg(json_build_array(j.id, j.token))::text INTO cancels
        FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.cancel_requested;
        SELECT g.* INTO drawn, next_due, next_tick, pauses, watches, neighbours
        FROM outlast_peek_v1(p_worker) g;
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
END
$$;
