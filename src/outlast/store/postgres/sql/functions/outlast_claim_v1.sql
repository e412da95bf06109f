-- Claim the jobs that a worker can run next (called by outlast_exchange_v1).
--
-- Returns one row for each claimed job and, last, a row with the head of the reply. The caller holds the worker's
-- row, and has checked that this worker still owns it and that the database has an incarnation. p_handed: the number
-- of ends that were handed in. p_busy: how many of these were answered busy; they keep their places, since the worker
-- hands them in again. p_ended: the streams of completions that are not noted (outlast_hand_in_v1). Runs under the
-- planner settings of outlast_exchange_v1. The steps, as numbered in the body:
--
-- 1  End up to 500 expired jobs. If there may be more, next_due is now, so that the worker comes back at once.
-- 2  Append jobs that have fallen due to the end of the line (outlast_due_v1).
-- 3  Claim from the line, by priority and position (outlast_lock_lanes_v1).
--
--    Concurrent claims: two claims never take the same job. Each skips rows that the other has locked, and a row that
--    was claimed since the snapshot no longer has a position when the lock re-checks its newest version. Locking and
--    changing are two statements, so that the update works on the versions that were locked. The update finds them by
--    ctid: the lock was taken on the newest version, and only its holder could move that. The update runs in table
--    order; the head of the reply gives the order of the line. A job that has expired by the time of the update (step 1
--    may read from a floor) is ended, unless 500 have been: it took the place of one behind it, so next_due is now. The
--    reply lists its id in the order of the line, but has no row for it.
--
--    Lanes: the line is read lane by lane (task, queue, priority), and only in lanes of the request's tasks, so that
--    jobs of unknown tasks slow no claim. Queues take turns: a claim starts behind the queue from which the last
--    claim for the same tasks took a job (firsts, one for each request), so that a long queue starves no other. A
--    claim reads no more queues than it has places (outlast_find_lanes_v1); no step walks over all queues. It looks
--    for as many lanes as the caller expects to need (mosts), then for four times as many, until its places are
--    filled.
--
--    Floors: the caller passes the lanes that it knows, each with a floor, the position below which it has found
--    nothing for a while. Rows that have left the line stay in the index until vacuum removes them, which it cannot
--    do while an older transaction is open. A scan from the head of a lane walks over all of them; a scan from the
--    floor does not. Floors are only hints. A job below its floor (its transaction stayed open while later jobs were
--    claimed) is found by a look below the floors. The caller asks for such a look once a second, as a range of
--    positions (look_from, look_to): the scan meets no more dead entries than the range has positions, so its
--    cost is bounded. A floor that is too high delays a job and never loses it, since whether a job can be claimed
--    depends on its row alone.
--
--    Unknown lanes: one probe of each gap between known lanes finds new lanes at once, because a gap holds no index
--    entry, live or dead, except of lanes that the caller does not know. Where the probes walk over too many dead
--    entries (v_walked), the caller has the gaps searched less often (searches), and in between only in the queues
--    that wake-ups have named (news).
--
--    Tokens: the token is drawn while the worker's row is held. A jump of the sequence (outlast_raise_tokens_v1)
--    locks the workers' table against all such holders, so it can never set the sequence back below a token drawn
--    here.
--
--    Reply size: a reply is also bounded in bytes of arguments and checkpoints (bytes_max), since a slow link must
--    carry it in time; the first job is sent regardless of its size. Rows that were locked beyond the bound stay
--    queued. Other claims skip them until this transaction commits, which takes no longer than sending such a reply.
--
--    Streams: jobs under limits, and jobs of tasks whose tenants take turns, stand in no lane. Half of the places go to
--    streams (outlast_claim_streams_v1), the other half to the line, and then streams get what the line has left; if the
--    line looks empty, streams get all places. Chance decides about an odd place, so that single places go to both.
--    Before that, notices of ends and arrivals are folded (outlast_fold_v1), and notices about jobs for which others
--    wait are resolved (outlast_resolve_v1). One look shows whether there is any notice, open stream or limit that opens
--    by time: in a store without limits and flows that is all.
-- 4  Claim suspects, for requests that ask for them (solo > 0; outlast_next_suspects_v1). Suspects have no position
--    and are never in the line; their own index finds them, and in most exchanges one probe of it shows that there
--    are none. The first due suspect decides the cohort. If another worker claims some jobs of that cohort at the
--    same time, they run there: a split cohort is only smaller.
-- 5  Find the largest kind of solo run that a due suspect of these requests waits for.
-- 6  Report what became of the wake-ups that the caller had heard before this call (wakes, outlast_followed_v1).
-- 7  Steps 3 to 5 skip what is paused as far as the caller knows (not_queues, not_tenants). Lanes of a paused
--    queue are not read; jobs of a paused tenant are passed over one by one, from their lane's floor on. The caller
--    gives back jobs that were claimed before it knew of a pause.
CREATE FUNCTION outlast_claim_v1(
    p_worker bigint, p_handed integer, p_busy integer, p_ended bigint[], p_req outlast_claim_request_v1)
RETURNS SETOF outlast_claimed_v1
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_at double precision := extract(epoch FROM v_now);
    v_reply outlast_claimed_v1;
    -- what the first look shows
    v_expires timestamptz; v_soonest timestamptz; v_most_solo integer;
    v_notices boolean; v_streams boolean; v_timed boolean; v_unknown boolean;
    v_index oid := 'outlast_jobs_expires'::regclass;
    v_from timestamptz := outlast_read_from_v1(v_index, v_now);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_line oid := 'outlast_jobs_lane'::regclass; v_line_read bigint;
    v_drawn bigint := CASE
        WHEN p_req.wakes IS NOT NULL THEN coalesce(pg_sequence_last_value('outlast_position_seq'), 0) END;
    v_wanted text[] := '{}'; v_served text[] := '{}'; v_served_queues text[] := '{}';
    -- one request
    v_tasks text[]; v_queues text[]; v_solo integer; v_left integer;
    v_due timestamptz; v_due_ids bigint[]; v_resolved record; v_folded record; v_stayed boolean;
    v_ended bigint[] := p_ended;
    v_open boolean; v_is_stream boolean; v_stream_left integer; v_rounds integer; v_last boolean;
    v_searches boolean; v_areas text[]; v_looks boolean; v_below boolean;
    v_lanes record; v_most integer; v_reached text; v_before text;
    v_next record; v_started timestamptz; v_count integer;
    -- the whole claim
    v_claimed integer := 0; v_bytes bigint := 0; v_stream_bytes bigint := 65536; v_cut boolean := false;
    v_expired integer := 0; v_next_due timestamptz; v_runnable bigint[]; v_opened bigint[] := '{}';
    v_permits bigint[] := '{}'; v_passed bigint[] := '{}'; v_contended boolean := false;
    v_has_places boolean := false; v_waiting integer := 0; v_walked bigint := 0; v_late integer; v_new json;
    v_order bigint[] := '{}'; v_places bigint[] := '{}'; v_shown bigint[] := '{}';
    v_counts integer[] := array_fill(0, ARRAY[cardinality(p_req.limits)]);
BEGIN
    v_soonest := outlast_first_due_v1(v_now);
    FOR v_room IN 1..cardinality(p_req.limits) LOOP
        IF p_req.solos[v_room] = 0 THEN
            v_served := v_served || p_req.tasks[v_room]::text[];
            v_served_queues := CASE
                WHEN p_req.queues[v_room] <> '{}' THEN v_served_queues || p_req.queues[v_room]::text[] END;
        END IF;
        CONTINUE WHEN p_req.solos[v_room] > 0 OR p_req.searches[v_room] = 0 OR p_req.tasks[v_room]::text[] <@ v_wanted;
        v_wanted := v_wanted || p_req.tasks[v_room]::text[];
    END LOOP;
    -- One statement for questions that most exchanges answer with no: has any job expired, does any suspect wait (and
    -- for which kind of solo run at most), is there anything to do for limits, and does any gap between known lanes hold
    -- a lane of a wanted task? (outlast_find_lanes_v1 defines the bounds of a gap.)
    v_line_read := pg_stat_get_xact_tuples_returned(v_line);
    SELECT (SELECT j.expires_at FROM outlast_jobs j
            WHERE j.expires_at IS NOT NULL AND j.state IN ('queued', 'blocked')
              AND j.expires_at >= v_from AND j.expires_at <= v_now
            ORDER BY j.expires_at LIMIT 1),
           (SELECT j.solo FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0
            ORDER BY j.solo DESC LIMIT 1),
           p_ended IS NOT NULL OR EXISTS (SELECT FROM outlast_notices) OR EXISTS (SELECT FROM outlast_upstream_notices),
           EXISTS (SELECT FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle),
           EXISTS (SELECT FROM outlast_permits p WHERE p.opens_at IS NOT NULL),
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
               CROSS JOIN LATERAL (
                   SELECT FROM outlast_jobs j
                   WHERE j.position IS NOT NULL AND j.stream IS NULL
                     AND (j.task, j.queue, (-j.priority)) > (g.t1, g.q1, g.r1)
                     AND (j.task, j.queue, (-j.priority))
                         < (CASE WHEN g.t2 = g.t1 THEN g.t1 ELSE g.t1 || chr(1) END,
                            CASE WHEN g.t2 = g.t1 THEN g.q2 ELSE '' END,
                            CASE WHEN g.t2 = g.t1 THEN g.r2 ELSE (-32768)::smallint END)
                   ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) p)
               ELSE true END  -- a caller that knows no lanes searches once
    INTO v_expires, v_most_solo, v_notices, v_streams, v_timed, v_unknown;
    v_walked := pg_stat_get_xact_tuples_returned(v_line) - v_line_read;
    IF v_timed AND NOT v_notices THEN
        v_notices := EXISTS (
            SELECT FROM (SELECT p.opens_at, p.touched_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL
                         ORDER BY p.opens_at LIMIT 10) p
            WHERE p.opens_at <= v_at OR p.touched_at > v_at + 1);
    END IF;
    -- 1
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_keep_floor_v1(v_index, v_from, v_expires, v_now, v_read);
    END IF;
    IF v_expires IS NOT NULL THEN v_expired := outlast_expire_v1(500); END IF;
    IF v_expired = 500 THEN v_next_due := v_now; END IF;

    FOR v_room IN 1..cardinality(p_req.limits) LOOP
        v_solo := p_req.solos[v_room];
        EXIT WHEN v_cut;
        CONTINUE WHEN v_solo > coalesce(v_most_solo, 0);
        v_left := least(p_req.limits[v_room] - p_busy, p_req.claims_max - v_claimed);
        CONTINUE WHEN v_left <= 0;
        v_tasks := p_req.tasks[v_room]::text[];
        v_queues := p_req.queues[v_room]::text[];
        v_due := NULL;
        IF v_solo = 0 THEN  -- 2
            v_due := v_soonest;
            IF v_soonest <= v_now OR (v_soonest IS NOT NULL AND cardinality(v_queues) > 0) THEN
                SELECT d.ids, d.next INTO v_due_ids, v_due FROM outlast_due_v1(v_queues, v_now) d;
                v_unknown := v_unknown OR v_due_ids IS NOT NULL;
                v_runnable := v_runnable || v_due_ids;
            END IF;
        END IF;
        IF v_notices OR v_due_ids IS NOT NULL AND EXISTS (SELECT FROM outlast_notices) THEN  -- 3
            FOR v_try IN 1..3 LOOP
                v_resolved := outlast_resolve_v1(500);
                v_unknown := v_unknown OR v_resolved.ids IS NOT NULL;
                v_runnable := v_runnable || v_resolved.ids;
                EXIT WHEN NOT v_resolved.more;
            END LOOP;
            IF v_resolved.more THEN v_next_due := v_now; END IF;
            v_folded := outlast_fold_v1(v_at, 1500, v_ended, v_served, coalesce(v_served_queues, '{}'), p_req.not_queues);
            v_permits := v_permits || v_folded.permits;
            v_opened := v_opened || v_folded.opened;
            v_stayed := v_folded.stayed;
            v_ended := NULL;
            IF v_folded.more THEN v_next_due := v_now; END IF;
            v_streams := true;
            v_notices := false;
            v_due_ids := NULL;
        END IF;
        v_open := v_solo = 0 AND v_streams;
        v_stream_left := 0;
        IF v_open THEN
            v_stream_left := CASE
                WHEN v_unknown AND cardinality(p_req.lane_queues) > 0 OR p_req.look_to IS NOT NULL
                    OR p_req.searches[v_room] <> 1 OR EXISTS (
                    SELECT FROM unnest(v_tasks) AS t (task)
                    CROSS JOIN LATERAL (
                        SELECT FROM outlast_jobs j
                        WHERE cardinality(p_req.lane_queues) = 0 AND j.task = t.task AND j.position IS NOT NULL
                          AND j.stream IS NULL
                        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) p
                    UNION ALL
                    SELECT FROM unnest(p_req.lane_tasks, p_req.lane_queues, p_req.lane_ranks, p_req.lane_floors)
                                AS k (task, queue, rank, low)
                    CROSS JOIN LATERAL (
                        SELECT FROM outlast_jobs j
                        WHERE j.task = k.task AND j.queue = k.queue AND (-j.priority) = k.rank AND j.position >= k.low
                          AND j.stream IS NULL
                        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) p)
                THEN (v_left + (random() < 0.5)::integer) / 2 ELSE v_left END;
        END IF;
        v_rounds := 4;
        v_last := false;

        v_searches := p_req.searches[v_room] = 1;
        v_areas := CASE WHEN v_searches OR cardinality(v_queues) > 0 THEN v_queues ELSE p_req.news END;
        v_looks := CASE WHEN v_searches THEN v_unknown ELSE cardinality(v_areas) > 0 END;
        v_most := least(p_req.mosts[v_room], v_left + 1);
        v_reached := p_req.firsts[v_room];
        v_before := NULL;
        v_below := p_req.look_to IS NOT NULL;
        LOOP
            v_is_stream := v_open AND v_stream_left > 0;
            IF v_is_stream THEN  -- 3
                v_next := outlast_claim_streams_v1(
                    v_tasks, v_queues, p_req.not_queues, p_req.not_tenants, v_passed, v_stream_left,
                    least(v_stream_bytes, p_req.bytes_max - v_bytes),
                    CASE WHEN v_claimed = 0 THEN 9223372036854775807 WHEN v_stream_bytes < 65536 THEN 0
                         ELSE p_req.bytes_max - v_bytes END);
                v_permits := v_permits || v_next.permits;
                v_passed := v_passed || v_next.passed;
                v_contended := v_contended OR v_next.contended;
                v_started := v_next.started;
                v_rounds := v_rounds - 1;
                v_stream_bytes := v_stream_bytes - coalesce(v_next.bytes, 0);
                v_stream_left := CASE WHEN v_rounds > 0 THEN v_stream_left - coalesce(cardinality(v_next.ids), 0) ELSE 0 END;
                v_open := NOT v_next.cut AND v_next.more;
                IF v_next.cut OR v_rounds = 0 AND v_next.more THEN v_next_due := v_now; END IF;
            ELSIF v_solo > 0 THEN  -- 4
                v_next := outlast_next_suspects_v1(
                    v_solo, v_tasks, v_queues, p_req.not_queues, p_req.not_tenants, v_left, v_now);
                v_permits := v_permits || v_next.permits;
                v_due := outlast_next_suspect_due_v1(
                    v_solo, v_tasks, v_queues, p_req.not_queues, p_req.not_tenants, v_now);
                v_reached := NULL;
            ELSE
                v_line_read := pg_stat_get_xact_tuples_returned(v_line);
                v_lanes := outlast_find_lanes_v1(
                    v_tasks, CASE WHEN v_below THEN v_queues ELSE v_areas END,
                    NOT v_searches AND cardinality(v_queues) = 0, p_req.not_queues,
                    p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors,
                    v_looks AND NOT v_below, v_reached, v_before, v_most);
                v_walked := v_walked + pg_stat_get_xact_tuples_returned(v_line) - v_line_read;
                v_next := outlast_lock_lanes_v1(
                    v_lanes.queues, v_lanes.tasks, v_lanes.ranks, v_lanes.floors, v_lanes.mixed,
                    CASE WHEN v_below THEN p_req.look_from END, p_req.look_to, p_req.not_tenants, v_left);
                IF v_below THEN
                    v_late := coalesce(v_late, 0) + coalesce(cardinality(v_next.ids), 0);
                    v_below := false;
                ELSE
                    v_most := least(4 * v_most, 1000000);
                    v_new := coalesce(v_new, v_lanes.fresh);
                    v_reached := v_lanes.reached;
                    IF v_reached IS NULL AND v_before IS NULL AND p_req.firsts[v_room] <> '' AND v_looks
                        AND cardinality(v_areas) = 0
                    THEN  -- wrap around: from the first queue up to where the search began
                        v_reached := '';
                        v_before := p_req.firsts[v_room];
                    END IF;
                END IF;
            END IF;
            IF v_bytes + v_next.bytes > p_req.bytes_max THEN
                SELECT greatest(count(*) FILTER (WHERE s.total <= p_req.bytes_max - v_bytes), 1 - v_claimed) INTO v_count
                FROM (SELECT sum(octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0))
                                 OVER (ORDER BY r.n) AS total
                      FROM unnest(v_next.rows) WITH ORDINALITY AS r (row, n)
                      JOIN outlast_jobs j ON j.ctid = r.row) s;
                v_next.ids := v_next.ids[:v_count];
                v_next.rows := v_next.rows[:v_count];
                v_next.positions := v_next.positions[:v_count];
                v_cut := true;
            END IF;
            IF cardinality(v_next.ids) > 0 THEN
                IF NOT v_is_stream THEN v_started := clock_timestamp(); END IF;
                RETURN QUERY
                UPDATE outlast_jobs j
                SET state = 'running', token = nextval('outlast_token_seq'),
                    attempt_count = greatest(0, least(j.attempt_count, 2147483646)) + 1, worker_id = p_worker,
                    started_at = v_started, position = NULL,
                    hard_deadline = CASE WHEN j.timeout IS NOT NULL THEN
                        v_started + greatest(0, least(j.timeout, 1e9)) * interval '1 second' END,
                    progress = NULL, checkpoint_number = 0
                WHERE j.ctid = ANY (v_next.rows)
                  AND (j.expires_at IS NULL OR j.expires_at > v_started)
                RETURNING NULL::text, j.id, j.token, j.task, j.queue, j.args, j.attempt_count,
                          j.failures, j.losses, j.policy, j.tenant, j.checkpoint, j.priority,
                          j.solo, j.incident, j.cohort, date_part('epoch', v_started) - date_part('epoch', j.run_at),
                          date_part('epoch', j.expires_at) - date_part('epoch', v_started);
                GET DIAGNOSTICS v_count = ROW_COUNT;
                IF v_count < cardinality(v_next.ids) AND v_expired < 500 THEN
                    v_expired := v_expired + outlast_end_expired_v1(ARRAY(
                        SELECT j.id FROM outlast_jobs j
                        WHERE j.ctid = ANY (v_next.rows) AND j.state = 'queued'), v_started);
                    v_next_due := v_now;
                END IF;
                v_order := v_order || v_next.ids;
                v_places := v_places || coalesce(
                    v_next.positions, array_fill(NULL::bigint, ARRAY[cardinality(v_next.ids)]));
                v_shown := v_shown || CASE WHEN v_is_stream OR v_next.positions IS NULL
                    THEN array_fill(NULL::bigint, ARRAY[cardinality(v_next.ids)]) ELSE v_next.positions END;
                v_claimed := v_claimed + v_count;
                v_counts[v_room] := v_counts[v_room] + v_count;
                v_left := v_left - v_count;
                v_bytes := v_bytes + v_next.bytes;
            END IF;
            EXIT WHEN v_left <= 0 OR v_cut;
            CONTINUE WHEN v_is_stream AND NOT v_last OR v_reached IS NOT NULL;
            IF NOT v_last THEN  -- the line has come to its end: streams get what it has left
                v_last := true;
                v_stream_left := v_left;
                v_rounds := 4;
            END IF;
            EXIT WHEN NOT v_open OR v_stream_left <= 0;
        END LOOP;
        IF v_left > 0 AND v_due IS NOT NULL THEN v_next_due := least(v_next_due, v_due); END IF;
        v_has_places := v_has_places OR v_left > 0;
    END LOOP;
    PERFORM outlast_leave_ends_v1(v_ended);
    IF v_permits <> '{}' THEN
        PERFORM outlast_leave_permits_v1(ARRAY(SELECT DISTINCT u FROM unnest(v_permits) AS u));
    END IF;
    IF v_has_places AND (v_streams OR v_timed) THEN
        -- the first time at which one opens that blocks streams of these tasks; held elsewhere, it may have opened already
        SELECT to_timestamp(greatest(least(min(p.opens_at), 1e11), v_at + 0.02)) INTO v_due
        FROM (SELECT p.id, p.opens_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL ORDER BY p.opens_at LIMIT 100) p
        WHERE EXISTS (SELECT FROM (SELECT s.task FROM outlast_streams s WHERE s.blocked = p.id
                                   ORDER BY s.blocked, s.rank, s.turn LIMIT 100) s WHERE s.task = ANY (v_served))
        HAVING min(p.opens_at) IS NOT NULL;
        v_next_due := least(v_next_due, v_due, CASE WHEN v_contended THEN v_now + (2 + 6 * random()) * interval '1 ms'
                 WHEN v_stayed THEN v_now + (10 + 30 * random()) * interval '1 ms' END);
    END IF;
    IF p_req.notify AND v_opened <> '{}' THEN  -- those that are still open wake listeners, by their first jobs
        v_runnable := v_runnable || ARRAY(
            SELECT j.id FROM unnest(v_opened) AS u (id)
            JOIN outlast_streams s ON s.id = ANY (ARRAY[u.id]) AND coalesce(s.blocked, 0) = 0 AND NOT coalesce(s.idle, false)
            CROSS JOIN LATERAL (
                SELECT j.id FROM outlast_jobs j
                WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
                ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) j);
    END IF;

    IF v_most_solo > 0 THEN  -- 5
        SELECT coalesce(max(k.solo), 0) INTO v_waiting
        FROM generate_series(1, v_most_solo) AS k (solo), unnest(p_req.tasks, p_req.queues) AS r (tasks, queues)
        WHERE EXISTS (SELECT FROM outlast_suspect_heads_v1(
            k.solo, r.tasks::text[], r.queues::text[], p_req.not_queues, p_req.not_tenants, v_now) h WHERE h.id IS NOT NULL);
    END IF;

    IF p_req.wakes IS NOT NULL THEN  -- 6
        PERFORM outlast_followed_v1(p_req.wakes, v_places, p_req.kind, v_drawn, p_req.limits, p_req.solos, v_counts,
            v_cut OR p_busy > 0 OR v_claimed >= p_req.claims_max OR 0 = ANY (p_req.searches)
                OR coalesce(v_next_due <= v_now, false),  -- there is more at once
            CASE WHEN p_req.look_to IS NULL THEN (SELECT max(u.floor) FROM unnest(p_req.lane_floors) AS u (floor)) END);
    END IF;

    IF p_req.notify AND v_runnable IS NOT NULL THEN
        PERFORM outlast_notify_v1(v_runnable);
    END IF;
    IF p_handed + v_claimed + v_expired = 0 THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
    v_reply.head := json_build_object(
        'order', v_order,
        'places', v_shown,
        'counts', v_counts,
        'next_due', outlast_seconds_v1(v_next_due, v_now),
        'contended', v_contended,
        'solo_waiting', v_waiting,
        'cut', v_cut,
        'expired', v_expired,
        'late', v_late,
        'walked', v_walked,
        'lanes', coalesce(v_new, '[]'::json))::text;
    RETURN NEXT v_reply;
END
$$;
