-- Hand in what has ended and claim what can run next, in one round trip and one commit.
--
-- Under READ COMMITTED, each statement of a volatile function takes its own snapshot, so a later step sees what other
-- sessions committed while an earlier step waited. The steps, as numbered in the body:
--
-- 1  Lock the worker's own row, found by id, registration, epoch and status, FOR KEY SHARE. A reap and a reconnect
--    take FOR UPDATE and raise the epoch. Whichever of them and the exchange comes second waits, then re-checks the
--    row; an exchange that comes second finds another epoch or status and claims nothing. Beats are plain updates and
--    do not conflict with KEY SHARE.
-- 2  Hand in ends (outlast_hand_in_v1).
-- 3  Claim (outlast_claim_v1), if the worker is active and asks for jobs. Nothing is claimed while the database has
--    no incarnation: its server was started, or it has crashed, failed over, or was restored or copied, and tokens
--    have not yet jumped over those that may be lost. The reply then says that the worker is not valid; the worker
--    reconnects, which draws an incarnation. The row of the incarnation is removed, or stops counting, only for
--    sessions that begin afterwards, so the incarnation seen in step 1 holds until the commit.
-- 4  List own running jobs with a cancel request, if step 1 has seen any. A later request is delivered by the next
--    exchange or beat.
-- 5  A commit that ends nothing and claims nothing does not wait for the disk: what it has done, such as giving due jobs
--    their places, the next exchange would do again. (After a failover, the clock of the standby may be behind: there a
--    job would begin whose expiry was shown and then lost. So outlast_claim_v1 decides, which knows of expired jobs.)
--
-- The lock of step 1 is the only one that this function waits for, so it cannot deadlock with cancel, reap or
-- enqueue.
--
-- Each statement costs 20 to 100 us before it touches a row, since its executor is set up again. An exchange that
-- completes and claims runs five; for most exchanges, one probe shows that there are no suspects, no scheduled jobs
-- and no new lanes. For the same reason parameters are arrays and not JSON, and functions are called from assignments
-- and not from a SELECT.
CREATE FUNCTION outlast_exchange_v1(
    p_worker bigint, p_epoch integer, p_registration text,
    p_done_ids bigint[], p_done_tokens bigint[], p_done_results text[], p_ends text, p_refusals_kept integer,
    p_req outlast_claim_request_v1)
RETURNS SETOF outlast_claimed_v1
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_status text; v_asked boolean; v_valid boolean; v_incarnation uuid;
    v_ends record; v_cancels json; v_reply outlast_claimed_v1;
BEGIN
    -- 1
    SELECT w.status,
           EXISTS (SELECT FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.cancel_requested),
           i.id
    INTO v_status, v_asked, v_incarnation
    FROM outlast_workers w, outlast_incarnation i
    WHERE w.id = p_worker AND w.epoch = p_epoch AND w.status IN ('active', 'draining')
      AND w.registration IS NOT DISTINCT FROM p_registration
      AND i.home = outlast_home_v1()
    FOR KEY SHARE OF w;
    v_valid := FOUND;

    -- 2
    v_ends := outlast_hand_in_v1(p_done_ids, p_done_tokens, p_done_results, p_ends, p_refusals_kept);

    -- 3
    IF v_valid AND v_status = 'active' AND cardinality(p_req.limits) > 0 THEN
        RETURN QUERY SELECT * FROM outlast_claim_v1(p_worker, v_ends.handed, v_ends.busy, v_ends.ended, p_req);
    ELSE
        PERFORM outlast_leave_ends_v1(v_ends.ended);
        IF v_ends.handed = 0 THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;  -- 5
    END IF;
    IF p_req.notify AND v_ends.runnable IS NOT NULL THEN
        PERFORM outlast_notify_v1(v_ends.runnable);
    END IF;
    -- 4
    IF coalesce(v_asked, true) THEN
        SELECT json_agg(json_build_array(j.id, j.token)) INTO v_cancels
        FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.cancel_requested;
    END IF;
    v_reply.head := json_build_object(
        'valid', v_valid,
        'others', coalesce(v_ends.others, '[]'::json),
        'cancels', coalesce(v_cancels, '[]'::json),
        'incarnation', v_incarnation,
        'drawn', coalesce(pg_sequence_last_value('outlast_position_seq'), 0))::text;
    RETURN NEXT v_reply;
END
$$;
