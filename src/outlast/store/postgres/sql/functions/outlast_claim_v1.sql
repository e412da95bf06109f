-- Claim the jobs that a worker can run next (called by outlast_exchange_v1).
--
-- Returns one row for each claimed job and, last, a row with the head of the reply. The caller holds the worker's
-- row, and has checked that this worker still owns it and that the database has an incarnation. p_handed: how many ends
-- were handed in. p_busy: how many of these were answered busy; they keep their places, since the worker hands them in
-- again. p_ended: the streams of completions that are not noted (outlast_hand_in_v1). Runs under the planner settings
-- of outlast_exchange_v1. The steps, as numbered in the body:
--
-- 1  Append jobs that have fallen due to the end of the line (outlast_due_v1).
-- 2  Look, in one statement, for what most exchanges need not do: end expired jobs, start suspects, fold or resolve
--    notices, open streams, search for unknown lanes. In a store without limits and flows this look is all that they
--    cost.
-- 3  End up to 500 expired jobs. If there may be more, next_due is now, so that the worker comes back at once.
-- 4  Resolve notices about jobs for which others wait (outlast_resolve_v1), and fold notices of ends and arrivals
--    (outlast_fold_v1).
-- 5  Choose jobs for each request, and start them: suspects for a request that asks for them (solo > 0,
--    outlast_next_suspects_v1), otherwise jobs of streams and of the line, within which priority and position decide.
--
--    Streams: jobs under limits, and jobs of tasks whose tenants take turns, stand in no lane. Half of the places go to
--    streams (outlast_claim_streams_v1), then the line gets what is left (outlast_claim_line_v1), and then streams what
--    the line has left; if the line looks empty, streams get all places at once. Chance decides about an odd place, so
--    that single places go to both. Streams come first, since large jobs of the line could fill each reply.
--
--    Concurrent claims: two claims never take the same job. Each skips rows that the other has locked, and a row that
--    was claimed since the snapshot no longer has a position when the lock re-checks its newest version. Locking and
--    changing are two statements, so that the update works on the versions that were locked. The update finds them by
--    ctid: the lock was taken on the newest version, and only its holder could move that. The update runs in table
--    order; the head of the reply gives the order in which they were chosen. A job of the line that has expired by the
--    time of the update (step 3 may read from a floor) is ended instead, unless 500 have been: it took the place of one
--    behind it, so next_due is now. The reply lists its id, but has no row for it.
--
--    Tokens: the token is drawn while the worker's row is held. A jump of the sequence (outlast_raise_tokens_v1)
--    locks the workers' table against all such holders, so it can never set the sequence back below a token drawn
--    here.
--
--    Reply size: a reply is also bounded in bytes of arguments and checkpoints (bytes_max), since a slow link must
--    carry it in time; the first job is sent regardless of its size. Jobs of streams are bounded to 64 KiB of it
--    (outlast_claim_streams_v1), but for one that is larger. Rows that were locked beyond the bound stay queued. Other
--    claims skip them until this transaction commits, which takes no longer than sending such a reply.
--
--    Pauses: a claim passes over the queues and tenants that the caller knows to be paused (not_queues, not_tenants).
--    The caller gives back jobs that were claimed before it knew of a pause.
-- 6  Look once more at the permits that are locked here (outlast_leave_permits_v1).
-- 7  Say when to come back: if there are places left, when the next job falls due or a limit opens; in a few
--    milliseconds, if other sessions held what this one needed.
-- 8  Find the largest kind of solo run that a due suspect of these requests waits for.
-- 9  Announce jobs that can run now, and report what became of the wake-ups that the caller had heard before this call
--    (wakes, outlast_followed_v1). Decide whether the commit waits for the disk (step 5 of outlast_exchange_v1).
CREATE FUNCTION outlast_claim_v1(
    p_worker bigint, p_handed integer, p_busy integer, p_ended bigint[], p_req outlast_claim_request_v1)
RETURNS SETOF outlast_claimed_v1
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_at double precision := extract(epoch FROM v_now);
    v_drawn bigint := CASE
        WHEN p_req.wakes IS NOT NULL THEN coalesce(pg_sequence_last_value('outlast_position_seq'), 0) END;
    v_served text[] := '{}';  -- the tasks of the requests for other jobs than suspects
    v_wanted text[] := '{}';  -- those of them whose unknown lanes are searched for
    v_index oid := 'outlast_jobs_expires'::regclass;
    v_from timestamptz := outlast_read_from_v1(v_index, v_now);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_walked bigint := pg_stat_get_xact_tuples_returned('outlast_jobs_lane'::regclass);
    v_due record; v_look record; v_resolved record; v_folded record;
    -- one request
    v_left integer; v_for_streams integer; v_rounds integer; v_streams boolean; v_line boolean;
    v_next record; v_count integer;
    -- the reply
    v_claimed integer := 0; v_bytes bigint := 0; v_of_streams bigint := 0; v_cut boolean := false;
    v_expired integer := 0; v_late integer; v_new json; v_reply outlast_claimed_v1;
    v_order bigint[] := '{}'; v_shown bigint[] := '{}'; v_places bigint[] := '{}';
    v_counts integer[] := array_fill(0, ARRAY[cardinality(p_req.limits)]);
    v_has_places boolean := false; v_is_filled boolean := false; v_contended boolean := false;
    v_next_due timestamptz; v_waiting integer := 0;
    -- what is left behind
    v_permits bigint[] := '{}'; v_passed bigint[] := '{}'; v_opened bigint[]; v_runnable bigint[];
BEGIN
    FOR i IN 1..cardinality(p_req.limits) LOOP
        CONTINUE WHEN p_req.solos[i] > 0;
        v_served := v_served || p_req.tasks[i]::text[];
        CONTINUE WHEN p_req.searches[i] = 0 OR p_req.tasks[i]::text[] <@ v_wanted;
        v_wanted := v_wanted || p_req.tasks[i]::text[];
    END LOOP;
    -- 1
    v_due := outlast_due_v1(p_req.queues, v_now);
    v_runnable := v_due.ids;
    -- 2 (outlast_find_lanes_v1 defines the bounds of a gap between known lanes)
    SELECT (SELECT j.expires_at FROM outlast_jobs j
            WHERE j.expires_at IS NOT NULL AND j.state IN ('queued', 'blocked')
              AND j.expires_at >= v_from AND j.expires_at <= v_now
            ORDER BY j.expires_at LIMIT 1) AS expires,
           coalesce((SELECT j.solo FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0
                     ORDER BY j.solo DESC LIMIT 1), 0) AS solo,
           p_ended IS NOT NULL OR EXISTS (SELECT FROM outlast_notices)
               OR EXISTS (SELECT FROM outlast_upstream_notices) AS notices,
           EXISTS (SELECT FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle) AS streams,
           -- whether a permit that lacks only time has opened; NULL: no permit lacks only time
           (SELECT bool_or(p.opens_at <= v_at OR p.touched_at > v_at + 1)
            FROM (SELECT p.opens_at, p.touched_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL
                  ORDER BY p.opens_at LIMIT 10) p) AS opened,
           CASE WHEN v_wanted = '{}' THEN false WHEN cardinality(p_req.lane_queues) > 0 THEN EXISTS (
               SELECT FROM (
                   SELECT w.task AS t1, ''::text AS q1, (-32768)::smallint AS r1,
                          p_req.lane_tasks[w.first] AS t2, p_req.lane_queues[w.first] AS q2,
                          p_req.lane_ranks[w.first] AS r2
                   FROM (SELECT u.task, array_position(p_req.lane_tasks, u.task) AS first
                         FROM unnest(v_wanted) AS u (task)) w
                   UNION ALL
                   SELECT k.t1, k.q1, k.r1, k.t2, k.q2, k.r2
                   FROM unnest(p_req.lane_tasks, p_req.lane_queues, p_req.lane_ranks,
                               p_req.lane_tasks[2:], p_req.lane_queues[2:], p_req.lane_ranks[2:])
                        AS k (t1, q1, r1, t2, q2, r2)
                   WHERE k.t1 = ANY (v_wanted)) g
               CROSS JOIN LATERAL outlast_next_lane_v1(
                   g.t1, g.q1, g.r1, CASE WHEN g.t2 = g.t1 THEN g.q2 END, g.r2) p)
               ELSE true END AS unknown  -- a caller that knows no lanes searches once
    INTO v_look;
    v_walked := pg_stat_get_xact_tuples_returned('outlast_jobs_lane'::regclass) - v_walked;
    -- 3
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_keep_floor_v1(v_index, v_from, v_look.expires, v_now, v_read);
    END IF;
    IF v_look.expires IS NOT NULL THEN v_expired := outlast_expire_v1(500); END IF;
    IF v_expired = 500 THEN v_next_due := v_now; END IF;
    -- 4
    IF v_look.notices OR v_look.opened THEN
        FOR i IN 1..3 LOOP  -- an end may follow from another
            v_resolved := outlast_resolve_v1(500);
            v_look.unknown := v_look.unknown OR v_resolved.ids IS NOT NULL;
            v_runnable := v_runnable || v_resolved.ids;
            EXIT WHEN NOT v_resolved.more;
        END LOOP;
        v_folded := outlast_fold_v1(v_at, 1500, p_ended, v_served, p_req.queues, p_req.not_queues);
        IF v_resolved.more OR v_folded.more THEN v_next_due := v_now; END IF;
        v_look.streams := true;
        v_permits := v_folded.permits;
        v_opened := v_folded.opened;
        v_contended := v_folded.stayed;
    END IF;
    -- 5
    FOR i IN 1..cardinality(p_req.limits) LOOP
        EXIT WHEN v_cut;
        v_left := least(p_req.limits[i] - p_busy, p_req.claims_max - v_claimed);
        v_is_filled := v_is_filled OR v_left <= 0 AND p_req.solos[i] = 0;
        CONTINUE WHEN v_left <= 0 OR p_req.solos[i] > v_look.solo;
        v_line := p_req.solos[i] = 0;
        v_streams := v_line AND v_look.streams;
        v_for_streams := CASE WHEN v_streams AND outlast_line_waits_v1(p_req, i, v_look.unknown)
                              THEN (v_left + (random() < 0.5)::integer) / 2 ELSE v_left END;
        v_rounds := 8;
        LOOP
            IF p_req.solos[i] > 0 THEN
                v_next := outlast_next_suspects_v1(
                    p_req.solos[i], p_req.tasks[i]::text[], p_req.queues, p_req.not_queues, p_req.not_tenants, v_left,
                    p_req.bytes_max - v_bytes, v_claimed = 0);
                v_cut := v_next.cut;
                v_permits := v_permits || v_next.permits;
            ELSIF v_streams AND v_for_streams > 0 THEN
                v_next := outlast_claim_streams_v1(
                    p_req.tasks[i]::text[], p_req.queues, p_req.not_queues, p_req.not_tenants, v_passed, v_for_streams,
                    least(65536 - v_of_streams, p_req.bytes_max - v_bytes),
                    CASE WHEN v_claimed = 0 THEN 9223372036854775807 WHEN v_of_streams > 0 THEN 0
                         ELSE p_req.bytes_max - v_bytes END);
                v_permits := v_permits || v_next.permits;
                v_passed := v_passed || v_next.passed;
                v_contended := v_contended OR v_next.contended;
                v_of_streams := v_of_streams + coalesce(v_next.bytes, 0);
                v_for_streams := v_for_streams - coalesce(cardinality(v_next.ids), 0);
                v_rounds := v_rounds - 1;
                v_streams := v_next.more AND NOT v_next.cut AND v_rounds > 0;
                IF v_next.cut OR v_next.more AND v_rounds = 0 THEN v_next_due := v_now; END IF;
            ELSE
                v_next := outlast_claim_line_v1(p_req, i, v_left, p_req.bytes_max - v_bytes, v_claimed = 0, v_look.unknown);
                v_cut := v_next.cut;
                v_walked := v_walked + v_next.walked;
                v_late := greatest(v_late, v_next.late);
                v_new := coalesce(v_new, v_next.fresh);
                v_line := false;
            END IF;
            IF cardinality(v_next.ids) > 0 THEN
                RETURN QUERY
                UPDATE outlast_jobs j
                SET state = 'running', token = nextval('outlast_token_seq'),
                    attempt_count = greatest(0, least(j.attempt_count, 2147483646)) + 1, worker_id = p_worker,
                    started_at = v_next.started, position = NULL,
                    hard_deadline = CASE WHEN j.timeout IS NOT NULL THEN
                        v_next.started + greatest(0, least(j.timeout, 1e9)) * interval '1 second' END,
                    progress = NULL, checkpoint_number = 0
                WHERE j.ctid = ANY (v_next.rows)
                  AND (j.expires_at IS NULL OR j.expires_at > v_next.started)
                RETURNING NULL::text, j.id, j.token, j.task, j.queue, j.args, j.attempt_count,
                          j.failures, j.losses, j.policy, j.tenant, j.checkpoint, j.priority,
                          j.solo, j.incident, j.cohort, date_part('epoch', v_next.started) - date_part('epoch', j.run_at),
                          date_part('epoch', j.expires_at) - date_part('epoch', v_next.started);
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
        IF p_req.solos[i] = 0 THEN
            v_has_places := v_has_places OR v_left > 0;
            v_is_filled := v_is_filled OR v_left <= 0;
        ELSIF v_left > 0 THEN
            v_next_due := least(v_next_due, outlast_next_suspect_due_v1(
                p_req.solos[i], p_req.tasks[i]::text[], p_req.queues, p_req.not_queues, p_req.not_tenants, v_now));
        END IF;
    END LOOP;
    -- 6
    IF v_permits <> '{}' THEN
        PERFORM outlast_leave_permits_v1(ARRAY(SELECT DISTINCT u FROM unnest(v_permits) AS u));
    END IF;
    -- 7
    IF v_has_places THEN
        v_next_due := least(v_next_due, v_due.next,
                            CASE WHEN v_contended THEN v_now + (2 + 6 * random()) * interval '1 ms' END);
        IF v_look.streams OR v_look.opened IS NOT NULL THEN
            v_next_due := least(v_next_due, outlast_next_opening_v1(v_served, v_at));
        END IF;
    END IF;
    -- 8
    IF v_look.solo > 0 THEN
        SELECT coalesce(max(k.solo), 0) INTO v_waiting
        FROM generate_series(1, v_look.solo) AS k (solo), unnest(p_req.tasks) AS r (tasks)
        WHERE EXISTS (SELECT FROM outlast_suspect_heads_v1(
            k.solo, r.tasks::text[], p_req.queues, p_req.not_queues, p_req.not_tenants, v_now) h WHERE h.id IS NOT NULL);
    END IF;
    -- 9
    IF p_req.notify AND v_opened <> '{}' THEN v_runnable := v_runnable || outlast_first_of_streams_v1(v_opened); END IF;
    IF p_req.notify AND v_runnable IS NOT NULL THEN PERFORM outlast_notify_v1(v_runnable); END IF;
    IF p_req.wakes IS NOT NULL THEN
        PERFORM outlast_followed_v1(
            p_req, v_drawn, v_places,
            v_is_filled OR v_cut OR 0 = ANY (p_req.searches) OR coalesce(v_next_due <= v_now, false));
    END IF;
    IF p_handed + v_claimed + v_expired = 0 THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;

    v_reply.head := json_build_object(
        'order', v_order,
        'places', v_shown,
        'counts', v_counts,
        'next_due', outlast_seconds_v1(v_next_due, v_now),
        'contended', v_has_places AND v_contended,
        'solo_waiting', v_waiting,
        'cut', v_cut,
        'expired', v_expired,
        'late', v_late,
        'walked', v_walked,
        'lanes', coalesce(v_new, '[]'::json))::text;
    RETURN NEXT v_reply;
END
$$;
