-- Do the work that comes before a claim, if step 1 or the ends of outlast_exchange_v1 have shown some. p_ended: the
-- streams of completions that are not noted (outlast_hand_in_v1). Runs inside outlast_exchange_v1, which holds the
-- worker's row, under its planner settings. The steps, as numbered in the body:
--
-- 1  Append jobs that have fallen due to the end of the line (outlast_due_v1). due: when the next one falls due.
-- 2  Check for expired jobs, notices, streams and permits. This comes after the ends, which may have left notices.
-- 3  End up to 500 expired jobs. If there may be more, next_due is now, so that the worker returns at once.
-- 4  Resolve notices about jobs for which others wait (outlast_resolve_v1). Some may be left: jobs are held by another
--    session, or an end of this exchange waits for an event. The worker comes back for them soon (contended).
--    Then look once more when the next job falls due: a job may have been opened before its time.
-- 5  If there is work for limits, or if streams of the caller's tasks are open, wait for the keeper lock
--    (outlast_lock_keeper_v1) for 30 ms, about as long as a few other exchanges take, and hold it to the commit
--    (is_keeper): then fold notices of ends and arrivals (outlast_fold_v1), and the caller claims from streams. Without
--    it, leave a notice of p_ended, and leave the rest to the sessions that come first (contended). If the caller lacks
--    many lanes (p_unknown), the reply of a session with the lock has no room for their names: chance decides whether
--    the caller takes the lock or is told the lanes.
--
-- runnable: jobs that can run now, and may be in lanes that the caller does not know. opens: some permit lacks only
-- time. Each function that is called argues why it is right; none of them waits for another lock.
CREATE FUNCTION outlast_prepare_claim_v1(
    p_req outlast_claim_request_v1, p_now double precision, p_ended bigint[], p_unknown boolean,
    OUT due double precision, OUT next_due double precision, OUT runnable bigint[], OUT expired integer,
    OUT streams boolean, OUT opens boolean, OUT served text[], OUT permits bigint[], OUT opened bigint[], OUT offered bigint[],
    OUT is_keeper boolean, OUT contended boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_index oid := 'outlast_jobs_expires'::regclass;
    v_from double precision := outlast_read_from_v1(v_index, p_now);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_due record; v_look record; v_resolved record; v_folded record; v_folds boolean;
BEGIN
    expired := 0;
    is_keeper := false;
    contended := false;
    served := '{}';
    offered := '{}';
    FOR i IN 1..cardinality(p_req.limits) LOOP
        served := served || p_req.tasks[i]::text[];
    END LOOP;
    -- 1
    v_due := outlast_due_v1(p_req.queues, p_now);
    due := v_due.next;
    runnable := v_due.ids;
    -- 2
    SELECT (SELECT j.expires_at FROM outlast_jobs j
            WHERE j.expires_at IS NOT NULL AND j.state IN ('queued', 'blocked')
              AND j.expires_at >= v_from AND j.expires_at <= p_now
            ORDER BY j.expires_at LIMIT 1) AS expires,
           EXISTS (SELECT FROM outlast_upstream_notices) AS upstream, EXISTS (SELECT FROM outlast_notices) AS notices,
           EXISTS (SELECT FROM unnest(served) AS t (task)
                   CROSS JOIN LATERAL (
                       SELECT o.id FROM outlast_streams o WHERE o.task = t.task AND o.blocked IS NULL AND NOT o.idle
                       ORDER BY o.task DESC, o.queue DESC, o.rank DESC, o.turn DESC LIMIT 1) s) AS streams,
           -- whether a permit that lacks only time has opened; NULL: no permit lacks only time
           (SELECT bool_or(p.opens_at <= p_now OR p.touched_at > p_now + 1)
            FROM (SELECT p.opens_at, p.touched_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL
                  ORDER BY p.opens_at LIMIT 10) p) AS opened
    INTO v_look;
    streams := v_look.streams;
    opens := v_look.opened IS NOT NULL;
    -- 3
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_keep_floor_v1(v_index, v_from, v_look.expires, p_now, v_read);
    END IF;
    IF v_look.expires IS NOT NULL THEN expired := outlast_expire_v1(500); END IF;
    IF expired = 500 THEN next_due := p_now; END IF;
    -- 4
    IF v_look.upstream THEN
        FOR i IN 1..3 LOOP  -- an end may follow from another
            v_resolved := outlast_resolve_v1(500);
            runnable := runnable || v_resolved.ids;
            EXIT WHEN NOT v_resolved.more;
        END LOOP;
        IF v_resolved.more THEN next_due := p_now; END IF;
        contended := EXISTS (SELECT FROM outlast_upstream_notices);
        v_due := outlast_due_v1(p_req.queues, p_now);
        due := v_due.next;
        runnable := runnable || v_due.ids;
        v_look.notices := EXISTS (SELECT FROM outlast_notices);
    END IF;
    -- 5
    v_folds := p_ended IS NOT NULL OR v_look.notices OR coalesce(v_look.opened, false);
    IF NOT (v_folds OR streams) THEN RETURN; END IF;
    is_keeper := true;
    IF p_unknown THEN
        is_keeper := random() < 0.5
            OR 32768 > (SELECT coalesce(sum(octet_length(l.task) + octet_length(l.queue) + 20), 0) FROM outlast_lanes l);
    END IF;
    is_keeper := is_keeper AND outlast_lock_keeper_v1(0.03);
    IF NOT is_keeper THEN
        contended := true;
        streams := false;
        IF p_ended IS NOT NULL THEN PERFORM outlast_leave_ends_v1(p_ended); END IF;
        RETURN;
    END IF;
    IF v_folds THEN
        v_folded := outlast_fold_v1(p_now, 1500, p_ended, served, p_req.queues, p_req.not_queues,
                                     p_req.not_tenants);
        IF v_folded.more THEN next_due := p_now; END IF;
        streams := true;
        permits := v_folded.permits;
        opened := v_folded.opened;
        offered := v_folded.offered;
    END IF;
END
$$;
