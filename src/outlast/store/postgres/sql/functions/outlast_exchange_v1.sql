-- Hand in ended attempts and claim jobs, in one round trip and one commit. Returns one row for each claimed job and,
-- last, a row with the head of the reply.
--
-- Under READ COMMITTED, each statement of a volatile function takes its own snapshot, so a later step sees what other
-- sessions committed while an earlier step waited. A statement costs 20 to 100 us before it touches a row, and a
-- PL/pgSQL expression about 1 us, since each transaction sets it up again. So the common exchange, which completes jobs
-- and claims others in lanes that the caller knows, runs four statements; all other work is in functions that it does
-- not call. For the same reason parameters are arrays rather than JSON, and functions are called from assignments
-- rather than from a SELECT. The steps, as numbered in the body:
--
-- 1  Lock the worker's own row, found by id, registration, epoch and status, FOR KEY SHARE. A reap and a reconnect take
--    FOR UPDATE and raise the epoch. Whichever comes second waits and then re-checks the row; an exchange that comes
--    second finds another epoch or status and claims nothing. Beats are plain updates and do not conflict.
--    The same statement checks for work that most exchanges can skip: a job has fallen due or has expired, notices have
--    to be folded or resolved, streams are open (is_long), some job is a suspect (suspects), the lanes differ from
--    those that the caller knows (unknown). The next exchange sees what is committed later.
-- 2  Hand in ends (outlast_hand_in_v1).
-- 3  Claim, if the worker is active and asks for jobs. Nothing is claimed while the database has no incarnation
--    (outlast_begin_incarnation_v1): the reply says that the worker is not valid, and its reconnect draws one. The row
--    of an incarnation is removed, or stops counting, only for sessions that begin afterwards, so the incarnation seen
--    in step 1 holds until the commit. The work that step 1 or the ends have shown is done first
--    (outlast_prepare_claim_v1). If the lanes then differ from those that the caller knows, all are read
--    (outlast_read_lanes_v1).
--    Only the session that holds the keeper lock (outlast_keeper_lock_v1) folds notices and claims from streams; it
--    keeps the lock to its commit. Exchanges and changes of limits get the lock in the order in which they ask. An
--    exchange waits for 30 ms at most, about as long as a few other exchanges take: when it only tried the lock,
--    workers with one free place rarely got it, and returned at the wrong times (seen). Without the lock an exchange
--    claims from the line alone, and its worker returns in a few milliseconds, later each time if it gets nothing
--    (`contended`, TripPlan).
-- 4  Choose jobs for each request, and start them: suspects for a request that asks for them (solo > 0,
--    outlast_lock_suspects_v1), otherwise jobs of streams and of the line, within which priority and position decide.
--    outlast_lock_lanes_v1 reads the line, called through outlast_claim_line_v1 where necessary.
--
--    Streams: half of the places are offered to streams (outlast_claim_streams_v1), then the others to the line, then
--    the rest to streams; if the line looks empty, all places are offered to streams at once. An odd place goes to
--    either side at random, so a worker with one free place serves both. Streams come first: large jobs of the line
--    could fill each reply.
--
--    Concurrent claims: two claims never take the same job. Each skips rows that the other has locked, and a row that
--    was claimed since the snapshot no longer has a position when the lock re-checks its newest version. Locking and
--    updating are two statements, so that the update works on the versions that were locked. It finds them by ctid: the
--    lock was taken on the newest version, and only its holder could make another. The update runs in table order; the
--    head of the reply gives the order in which the jobs were chosen. A job of the line that has expired by the time of
--    the update (steps 1 and 3 may have read from a floor and missed it) is ended instead, unless this exchange has
--    ended 500: it took the place of a job behind it, so next_due is now. The reply lists its id without a row.
--
--    Tokens: a token is drawn while the worker's row is locked. A jump of the sequence (outlast_raise_tokens_v1) locks
--    the workers' table against all holders of such a lock, so it never sets the sequence below a token drawn here.
--
--    Reply size: the arguments and checkpoints in a reply are also bounded in bytes (bytes_max), since a slow link must
--    carry it in time; the first job is sent regardless of its size. Rows that were locked beyond the bound stay
--    queued; other claims skip them until this transaction commits, which takes no longer than sending such a reply.
--    If a client stops reading, the commit waits once the buffers between it and the server are full, and so do all
--    sessions that wait for the keeper lock. So a session that has the lock sends no more than these buffers take: at
--    most 200 jobs, and at most 64 KiB each of their texts (room) and of lanes. Jobs beyond that are claimed, but sent
--    without texts, which the client reads after this commit (`apart` of exchange.sql). All jobs of one UPDATE are sent
--    alike.
--
--    Pauses: a claim passes over the queues and tenants that the caller knows to be paused (not_queues, not_tenants).
--    The caller releases jobs that were claimed before it knew of a pause.
-- 5  Check the permits once more (outlast_leave_permits_v1). Tell the worker when to return: if it has places left,
--    when the next job falls due or a limit opens; at once, if a limit has room for a stream that is not open; in a few
--    milliseconds, if another session had the keeper lock, or if others hold the jobs of the streams that it looked at.
-- 6  Announce jobs that can run now, and report what became of the wake-ups that the caller heard (wakes,
--    outlast_followed_v1).
-- 7  A commit that ends nothing and claims nothing does not wait for the disk: the next exchange would redo its work,
--    such as putting due jobs into the line. A commit that has ended expired jobs waits: after a failover the standby's
--    clock may be behind, and a job whose expiry was shown and then lost would begin there.
-- 8  List the worker's running jobs with a cancel request, if step 1 saw any. The next exchange or beat brings later
--    ones.
--
-- The lock of step 1 is the only one that this function waits for without a bound, so it cannot deadlock with cancel,
-- reap or enqueue. The session that has the keeper lock waits for no job's row, so no session waits behind it for one.
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
    v_now double precision := date_part('epoch', clock_timestamp());
    v_asked integer := cardinality(p_req.limits);
    v_due_from double precision; v_expires_from double precision;  -- NULL: from the first entry on
    v_drawn bigint; v_look record; v_ends record; v_first record;
    v_valid boolean; v_is_long boolean := false; v_open boolean := false;
    -- one request
    v_solo integer; v_left integer; v_for_streams integer; v_rounds integer; v_streams boolean; v_line boolean;
    v_next record; v_count integer;
    -- the reply
    v_claimed integer := 0; v_bytes bigint := 0; v_room bigint; v_cut boolean := false;
    v_apart boolean := false; v_size bigint;
    v_expired integer := 0; v_late integer; v_read integer[]; v_new json; v_cancels json; v_claim json; v_reply outlast_claimed_v1;
    v_from text := p_req.streams_from;
    v_order bigint[]; v_shown bigint[]; v_places bigint[]; v_counts integer[];
    v_has_places boolean := false; v_is_filled boolean := false; v_contended boolean := false;
    v_next_due double precision;
    -- for the steps after the claim
    v_permits bigint[]; v_passed bigint[]; v_offered bigint[]; v_runnable bigint[];
BEGIN
    -- 1
    IF current_setting('outlast.floors', true) = 'kept' THEN
        v_due_from := outlast_read_from_v1('outlast_jobs_run_at'::regclass, v_now);
        v_expires_from := outlast_read_from_v1('outlast_jobs_expires'::regclass, v_now);
    END IF;
    IF p_req.wakes IS NOT NULL THEN v_drawn := coalesce(pg_sequence_last_value('outlast_position_seq'), 0); END IF;
    SELECT pg_stat_get_xact_tuples_returned('outlast_jobs_lane'::regclass) AS walked_before,
           pg_stat_get_xact_tuples_returned('outlast_jobs_run_at'::regclass)
               + pg_stat_get_xact_tuples_returned('outlast_jobs_expires'::regclass) AS read_before,
           w.status,
           EXISTS (SELECT FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.cancel_requested) AS asked,
           i.id AS incarnation,
           CASE WHEN v_asked > 0 THEN (
               SELECT j.run_at FROM outlast_jobs j
               WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
                 AND j.run_at >= coalesce(v_due_from, '-infinity') AND j.run_at <= v_now + 60
               ORDER BY j.run_at LIMIT 1) END AS due,
           v_asked > 0 AND (
               EXISTS (SELECT FROM outlast_jobs j
                       WHERE j.expires_at IS NOT NULL AND j.state IN ('queued', 'blocked')
                         AND j.expires_at >= coalesce(v_expires_from, '-infinity') AND j.expires_at <= v_now)
               OR EXISTS (SELECT FROM outlast_notices)
               OR EXISTS (SELECT FROM outlast_upstream_notices)
               OR (SELECT s.turn FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle
                   ORDER BY s.task DESC, s.queue DESC, s.rank DESC, s.turn DESC LIMIT 1) IS NOT NULL
               OR EXISTS (SELECT FROM outlast_permits p WHERE p.opens_at IS NOT NULL)) AS is_long,
           v_asked > 0 AND EXISTS (SELECT FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0) AS suspects,
           v_asked > 0 AND (SELECT coalesce(bit_xor(l.id), 0) FROM outlast_lanes l) <> p_req.lanes_seen AS unknown,
           -- the index entries that this session has read by now: PostgreSQL evaluates a list from left to right
           pg_stat_get_xact_tuples_returned('outlast_jobs_run_at'::regclass)
               + pg_stat_get_xact_tuples_returned('outlast_jobs_expires'::regclass) AS read
    INTO v_look
    FROM outlast_workers w, outlast_incarnation i
    WHERE w.id = p_worker AND w.epoch = p_epoch AND w.status IN ('active', 'draining')
      AND w.registration IS NOT DISTINCT FROM p_registration
      AND i.home = outlast_home_v1()
    FOR KEY SHARE OF w;
    v_valid := FOUND;

    -- 2
    v_ends := outlast_hand_in_v1(p_done_ids, p_done_tokens, p_done_results, p_ends, p_refusals_kept);
    v_runnable := v_ends.runnable;

    IF v_valid AND v_look.status = 'active' AND v_asked > 0 THEN
        -- 3
        IF v_look.is_long OR v_ends.is_long OR v_look.read - v_look.read_before > 1000
           OR v_look.due <= (CASE WHEN p_req.queues = '{}' THEN v_now ELSE 'infinity' END) THEN
            v_is_long := true;
            v_first := outlast_prepare_claim_v1(p_req, v_now, v_ends.ended, v_look.unknown);
            v_open := v_first.streams;
            v_look.due := v_first.due;
            v_runnable := v_runnable || v_first.runnable;
            v_next_due := v_first.next_due;
            v_expired := v_first.expired;
            v_permits := v_first.permits;
            v_offered := v_first.offered;
            v_contended := v_first.contended;
            IF v_first.is_keeper THEN
                v_room := 65536;
                p_req.claims_max := least(p_req.claims_max, 200);
            END IF;
        END IF;
        IF v_runnable IS NOT NULL AND NOT outlast_line_up_v1(v_runnable) THEN v_look.unknown := true; END IF;
        IF v_look.unknown THEN
            v_next := outlast_read_lanes_v1(p_req);
            p_req := v_next.p_req;
            v_new := v_next.fresh;
        END IF;
        -- 4
        v_counts := array_fill(0, ARRAY[v_asked]);
        FOR i IN 1..v_asked LOOP
            v_cut := v_cut OR v_claimed >= p_req.claims_max;
            EXIT WHEN v_cut;
            v_left := least(p_req.limits[i] - v_ends.busy, p_req.claims_max - v_claimed);
            v_solo := p_req.solos[i];
            v_is_filled := v_is_filled OR v_left <= 0 AND v_solo = 0;
            CONTINUE WHEN v_left <= 0 OR v_solo > 0 AND NOT (v_look.suspects OR v_is_long);
            v_line := true;
            v_streams := v_open;
            IF v_streams THEN
                v_rounds := 8;
                v_passed := '{}';
                v_for_streams := CASE WHEN v_solo > 0 OR outlast_line_waits_v1(p_req, i)
                                      THEN (v_left + (random() < 0.5)::integer) / 2 ELSE v_left END;
            END IF;
            LOOP
                IF v_streams AND v_for_streams > 0 THEN
                    v_next := outlast_claim_streams_v1(
                        p_req.tasks[i]::text[], p_req.queues, p_req.not_queues, p_req.not_tenants, v_offered, v_passed,
                        v_for_streams, p_req.bytes_max - v_bytes, v_claimed = 0,
                        CASE WHEN v_solo = 0 THEN v_from ELSE '' END,
                        CASE WHEN v_solo > 0 OR v_look.suspects THEN v_solo END);
                    IF v_solo = 0 THEN v_from := v_next.reached; END IF;
                    v_permits := v_permits || v_next.permits;
                    v_passed := v_passed || v_next.passed;
                    v_offered := v_next.left_over;
                    v_for_streams := v_for_streams - coalesce(cardinality(v_next.ids), 0);
                    v_rounds := v_rounds - 1;
                    v_streams := v_next.more AND NOT v_next.cut AND v_rounds > 0;
                    IF v_solo = 0 AND (v_next.cut OR v_next.more AND v_rounds = 0) THEN
                        IF v_claimed = 0 AND v_next.passed <> '{}' THEN v_contended := true; ELSE v_next_due := v_now; END IF;
                    END IF;
                ELSE
                    IF v_solo > 0 THEN
                        v_next := outlast_lock_suspects_v1(p_req, i, v_left);
                    ELSIF p_req.mixed OR p_req.look_to IS NOT NULL THEN
                        v_next := outlast_claim_line_v1(p_req, i, v_left);
                        v_late := greatest(v_late, v_next.late);
                    ELSE
                        v_next := outlast_lock_lanes_v1(
                            p_req, i, p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors, false,
                            NULL, NULL, v_left);
                    END IF;
                    v_line := false;
                    IF v_next.bytes > p_req.bytes_max - v_bytes THEN
                        v_count := outlast_fit_v1(v_next.rows, p_req.bytes_max - v_bytes, v_claimed = 0);
                        v_cut := coalesce(v_count < cardinality(v_next.rows), false);
                        v_next.ids := v_next.ids[:v_count];
                        v_next.rows := v_next.rows[:v_count];
                        v_next.positions := v_next.positions[:v_count];
                        v_next.shown := v_next.shown[:v_count];
                    END IF;
                    IF v_solo = 0 AND NOT v_cut AND coalesce(cardinality(v_next.ids), 0) < v_left THEN
                        v_read := v_read || i;
                    END IF;
                END IF;
                IF cardinality(v_next.ids) > 0 THEN
                    IF v_room IS NOT NULL THEN
                        v_size := (
                            SELECT sum(octet_length(j.args) + octet_length(j.task) + octet_length(j.queue)
                                       + octet_length(j.policy) + coalesce(octet_length(j.tenant), 0)
                                       + coalesce(octet_length(j.checkpoint), 0))
                            FROM outlast_jobs j WHERE j.ctid = ANY (v_next.rows));
                        v_apart := v_size > v_room;
                        v_room := v_room - CASE WHEN v_apart THEN 0 ELSE v_size END;
                    END IF;
                    RETURN QUERY
                    UPDATE outlast_jobs j
                    SET state = 'running', token = nextval('outlast_token_seq'),
                        attempt_count = greatest(0, least(j.attempt_count, 2147483646)) + 1, worker_id = p_worker,
                        started_at = v_next.started, position = NULL,
                        hard_deadline = CASE WHEN j.timeout IS NOT NULL THEN
                            v_next.started + greatest(0, least(j.timeout, 1e9)) END,
                        progress = NULL, checkpoint_number = 0
                    WHERE j.ctid = ANY (v_next.rows)
                      AND (j.expires_at IS NULL OR j.expires_at > v_next.started)
                    RETURNING NULL::text, j.id, j.token, CASE WHEN NOT v_apart THEN j.task END,
                              CASE WHEN NOT v_apart THEN j.queue END, CASE WHEN NOT v_apart THEN j.args END,
                              j.attempt_count, j.failures, j.losses, CASE WHEN NOT v_apart THEN j.policy END,
                              CASE WHEN NOT v_apart THEN j.tenant END, CASE WHEN NOT v_apart THEN j.checkpoint END,
                              j.priority, j.solo, j.incident, v_next.started - j.run_at,
                              j.expires_at - v_next.started,
                              j.awaited OR j.stream IS NOT NULL;
                    GET DIAGNOSTICS v_count = ROW_COUNT;
                    IF v_count < cardinality(v_next.ids) AND v_expired < 500 THEN
                        v_expired := v_expired + outlast_end_expired_v1(ARRAY(
                            SELECT j.id FROM outlast_jobs j
                            WHERE j.ctid = ANY (v_next.rows) AND j.state = 'queued'), v_next.started);
                        v_next_due := v_now;
                    END IF;
                    v_order := v_order || v_next.ids;
                    v_shown := v_shown || v_next.shown;
                    v_places := v_places || v_next.positions;
                    v_claimed := v_claimed + v_count;
                    v_counts[i] := v_counts[i] + v_count;
                    v_left := v_left - v_count;
                    v_bytes := v_bytes + v_next.bytes;
                END IF;
                EXIT WHEN v_left <= 0 OR v_cut OR NOT (v_line OR v_streams);
                IF NOT v_line THEN v_for_streams := v_left; END IF;
            END LOOP;
            v_cut := v_cut OR v_claimed >= p_req.claims_max AND v_counts[i] < p_req.limits[i] - v_ends.busy;
            IF v_solo = 0 THEN
                v_has_places := v_has_places OR v_left > 0;
                v_is_filled := v_is_filled OR v_left <= 0;
            ELSE
                v_cut := v_cut OR v_counts[i] > 0 AND i < v_asked;
            END IF;
        END LOOP;
        -- 5
        IF v_has_places THEN
            v_next_due := least(v_next_due, v_look.due,
                                CASE WHEN v_contended THEN v_now + (2 + 6 * random()) / 1000 END);
        END IF;
        IF v_is_long THEN
            IF v_offered <> '{}' THEN UPDATE outlast_streams s SET blocked = NULL WHERE s.id = ANY (v_offered); END IF;
            IF v_permits <> '{}' THEN
                IF outlast_leave_permits_v1(ARRAY(SELECT DISTINCT u FROM unnest(v_permits) AS u)) AND v_has_places THEN
                    v_next_due := v_now;
                END IF;
            END IF;
            IF v_has_places AND (v_open OR v_first.opens) THEN
                v_next_due := least(v_next_due, outlast_next_opening_v1(v_first.served, v_now));
            END IF;
            IF p_req.notify AND v_first.opened <> '{}' THEN
                v_runnable := v_runnable || outlast_first_of_streams_v1(v_first.opened);
            END IF;
        END IF;
        -- 6
        IF p_req.wakes IS NOT NULL THEN
            PERFORM outlast_followed_v1(
                p_req, v_drawn, coalesce(v_places, '{}'),
                v_is_filled OR v_cut OR coalesce(v_next_due <= v_now, false));
        END IF;
        v_claim := json_build_object(
            'order', coalesce(v_order, '{}'),
            'places', coalesce(v_shown, '{}'),
            'counts', v_counts,
            'next_due', v_next_due - v_now,
            'contended', v_has_places AND v_contended,
            'cut', v_cut,
            'expired', v_expired,
            'late', v_late,
            'streams_from', v_from,
            'walked', pg_stat_get_xact_tuples_returned('outlast_jobs_lane'::regclass) - v_look.walked_before,
            'read', coalesce(v_read, '{}'),
            'lanes', CASE WHEN v_room IS NULL OR octet_length(v_new::text) <= 65536 THEN v_new END);
    ELSE
        IF v_ends.ended IS NOT NULL THEN PERFORM outlast_leave_ends_v1(v_ends.ended); END IF;
        IF v_runnable IS NOT NULL THEN PERFORM outlast_line_up_v1(v_runnable); END IF;
    END IF;
    IF p_req.notify AND v_runnable IS NOT NULL THEN PERFORM outlast_notify_v1(v_runnable); END IF;
    -- 7
    IF v_ends.handed + v_claimed + v_expired = 0 THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
    -- 8
    IF coalesce(v_look.asked, true) THEN
        SELECT json_agg(json_build_array(j.id, j.token)) INTO v_cancels
        FROM outlast_jobs j WHERE j.worker_id = p_worker AND j.cancel_requested;
    END IF;
    v_reply.head := json_build_object(
        'valid', v_valid,
        'others', coalesce(v_ends.others, '[]'::json),
        'cancels', coalesce(v_cancels, '[]'::json),
        'incarnation', v_look.incarnation,
        'drawn', coalesce(pg_sequence_last_value('outlast_position_seq'), 0),
        'claim', v_claim)::text;
    RETURN NEXT v_reply;
END
$$;
