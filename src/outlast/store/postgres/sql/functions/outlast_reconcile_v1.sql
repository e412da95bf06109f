-- Release the worker's running jobs that the worker does not hold: claims whose reply was lost.
--
-- The worker's row is locked at its epoch, as by an exchange, so a worker that was reaped or has reconnected since
-- releases nothing. This would also release the claims of an exchange of the same epoch that is under way; so the
-- worker calls it only when it has no such exchange, or after a reconnect, which has waited for it.
CREATE FUNCTION outlast_reconcile_v1(
    p_worker bigint, p_epoch integer, p_held bigint[], p_notify boolean, p_registration text)
RETURNS TABLE (job_id bigint, token bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ends json;
BEGIN
    PERFORM FROM outlast_workers w
    WHERE w.id = p_worker AND w.epoch = p_epoch AND w.status IN ('active', 'draining')
      AND w.registration IS NOT DISTINCT FROM p_registration
    FOR KEY SHARE;
    IF NOT FOUND THEN RETURN; END IF;

    SELECT json_agg(json_build_object(
               'job_id', j.id, 'token', j.token, 'state', 'queued', 'outcome', 'released',
               'charge', 'none', 'began', false, 'failures', j.failures, 'losses', j.losses,
               'message', 'its worker does not know of it',
               'solo', j.solo, 'incident', j.incident))
    INTO v_ends
    FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.token <> ALL (p_held);
    IF v_ends IS NOT NULL THEN
        RETURN QUERY SELECT c.job_id, c.token FROM outlast_close_v1(v_ends::text, p_notify) c;
    END IF;
END
$$;
