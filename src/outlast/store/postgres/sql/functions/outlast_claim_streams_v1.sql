-- Take the next jobs of open streams, and count them as started. This is one round: outlast_exchange_v1 calls it again
-- while it has places. The caller starts exactly the returned rows, in this transaction, with `started` as their start.
--
-- Order: the first stream of each queue by rank and turn, then the second of each, and so on; all the first ones by
-- turn, then all the second ones. Streams whose only jobs belong to tenants to pass over (p_not_tenants) are left out,
-- and ordered streams whose holder may not start here.
-- Streams of a lower priority than the first of their queue get the places that the others leave; if these start fewer
-- jobs than they were offered (their jobs are locked, or have expired), the next round passes over them (p_passed). A
-- stream that started a job goes to the end of the turns; if all open streams start jobs, and no other waits for their
-- permits, their order stays, and their rows are not written (v_turns). So a queue with streams of high priority
-- starves no other, and a tenant with a million jobs delays the others by one turn. A call considers at most 256 pairs
-- of task and queue that have open streams, from the last queue to the first, in queues before p_from. If there may be
-- more, `reached` is the first of these queues, for the caller's next call; otherwise it is empty.
--
-- p_offered: streams that outlast_fold_v1 has found room for. They count as open, although their rows still say what
-- has blocked them: most are blocked by the same permit again, and need no write. left_over: streams that were not looked
-- at, which the caller opens before its commit if no other round takes them.
--
-- Jobs are read from the stream's floor on, and the floor follows the first job that is still there, by steps of some
-- 500 places. A job below it was not committed when the floor was read, or came later: its notice names its place, and
-- the fold of that notice, which follows this commit, takes the floor back (outlast_fold_v1).
--
-- p_solo: 0 for jobs that run beside others, and NULL if no job is known to be a suspect: suspects are passed over, and
-- their streams stay open. Above 0: for suspects of this kind.
--
-- The caller has the keeper lock (outlast_keeper_lock_v1), so no other session writes streams or permits, or changes a
-- limit: what is read here holds to the commit. Nothing here waits: jobs that other sessions hold are passed over.
--   * Concurrent claims: none claims from streams. An act of a person, an expiry or a requeue holds a job's row to its
--     commit; a row that has changed since the snapshot is re-checked when it is locked.
--   * A permit's count rises in the commit that draws the tokens. If the commit fails, no job has started. If its reply
--     is lost, the attempts are running and hold their permits, until reconcile or reap releases them.
--   * blocked is written only where the permit has no room once the starts of this transaction are counted (those that
--     took place, not those that were offered); idle only where a statement finds no other job of the stream, paused
--     ones included. A job that becomes due later, and an end, leave a notice; its fold needs the lock, and so follows
--     this commit.
--   * A late worker, a reap: they change jobs that are running, not these.
--   * An ordered stream starts one job at a time. Its holder is the job that has begun and not ended for good: only the
--     holder may start, once it has a place, and until then the stream is blocked (-2), even if others wait in it. If
--     its end, or its next place, commits after its row was read here, its notice (outlast_note_v1) is folded after
--     this commit.
--   * A stream that needs several permits, beside streams that need one of them: if some of its permits have room while
--     others are full or lack only time, one place is kept for it on the row of each permit with room. The place is
--     kept for half as long as the stream has waited, and not again before as long a time has passed: so the stream
--     starts in the end, and the place is unused for half of the time at most. A later look reads that the place is
--     taken, and in opens_at when it no longer is (outlast_leave_permits_v1).
CREATE FUNCTION outlast_claim_streams_v1(
    p_tasks text[], p_queues text[], p_not_queues text[], p_not_tenants text[], p_offered bigint[], p_passed bigint[], p_limit integer,
    p_bytes_max bigint, p_is_first boolean, p_from text, p_solo integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT shown bigint[], OUT bytes bigint,
    OUT started double precision, OUT cut boolean, OUT permits bigint[], OUT more boolean, OUT passed bigint[], OUT left_over bigint[],
    OUT reached text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    s record; p record; v_of integer[];
    v_free integer[]; v_ahead double precision[]; v_at integer[]; v_quota integer[]; v_taken integer[];
    v_blocked bigint[]; v_count integer[];
    v_left integer := p_limit; v_share integer; v_room integer; v_step integer; v_need integer := 1; v_one integer;
    v_starts integer; v_kept bigint[]; v_kept_until double precision[]; v_rest boolean; v_seconds double precision;
    v_free_at_first integer[]; v_used integer[]; v_holders bigint[]; v_waits boolean[]; v_begun bigint[]; v_turns boolean;
BEGIN
    permits := '{}';
    cut := false;
    more := false;
    passed := '{}';
    left_over := p_offered;
    WITH RECURSIVE lane (task, queue, nth) AS (
        SELECT h.task, h.queue, 1
        FROM unnest(p_tasks) AS t (task)
        CROSS JOIN LATERAL (
            (SELECT o.task, o.queue FROM outlast_streams o
             WHERE cardinality(p_queues) = 0 AND p_from = '' AND o.task = t.task AND o.blocked IS NULL AND NOT o.idle
             ORDER BY o.task DESC, o.queue DESC, o.rank DESC, o.turn DESC LIMIT 1)
            UNION ALL
            (SELECT o.task, o.queue FROM outlast_streams o
             WHERE cardinality(p_queues) = 0 AND o.task = t.task AND o.queue < p_from AND o.blocked IS NULL AND NOT o.idle
             ORDER BY o.task DESC, o.queue DESC, o.rank DESC, o.turn DESC LIMIT 1)) h
        UNION ALL
        SELECT h.task, h.queue, l.nth + 1
        FROM lane l
        CROSS JOIN LATERAL (
            SELECT o.task, o.queue FROM outlast_streams o
            WHERE o.task = l.task AND o.queue < l.queue AND o.blocked IS NULL AND NOT o.idle
            ORDER BY o.task DESC, o.queue DESC, o.rank DESC, o.turn DESC LIMIT 1) h
        WHERE l.nth < 256 + cardinality(p_not_queues)
    ), area AS MATERIALIZED (
        SELECT l.task, l.queue FROM lane l
        UNION ALL
        SELECT t.task, q.queue
        FROM unnest(p_tasks) AS t (task), (SELECT DISTINCT u FROM unnest(p_queues) AS u WHERE p_from = '' OR u < p_from COLLATE "C") AS q (queue)
        WHERE (SELECT o.id FROM outlast_streams o WHERE o.task = t.task AND o.queue = q.queue AND o.blocked IS NULL AND NOT o.idle
               ORDER BY o.task DESC, o.queue DESC, o.rank DESC, o.turn DESC LIMIT 1) IS NOT NULL
    ), candidate AS MATERIALIZED (
        SELECT h.id, h.rank = min(h.rank) OVER (PARTITION BY h.queue) AS first,
               row_number() OVER (PARTITION BY h.queue ORDER BY h.rank, h.turn) AS nth, h.turn
        FROM (SELECT h.*
              FROM (SELECT a.task, a.queue FROM area a WHERE a.queue <> ALL (p_not_queues) ORDER BY a.queue DESC LIMIT 256) a
              CROSS JOIN LATERAL (
                  SELECT o.id, o.queue, o.rank, o.turn FROM outlast_streams o
                  WHERE o.task = a.task AND o.queue = a.queue AND o.blocked IS NULL AND NOT o.idle
                    AND (o.tenant IS NULL OR o.tenant <> ALL (p_not_tenants)) AND o.id <> ALL (p_passed)
                    AND (o.holder IS NULL OR coalesce((
                        SELECT j.position IS NULL OR greatest(0, j.solo) = coalesce(p_solo, 0)
                               AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                        FROM outlast_jobs j WHERE j.id = ANY (ARRAY[o.holder]) AND j.stream = o.id AND j.ended_at IS NULL), true))
                    AND CASE WHEN p_solo > 0 THEN (
                            SELECT j.id FROM outlast_jobs j
                            WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo AND coalesce(j.position, 0) > 0
                              AND j.task = o.task AND j.queue = o.queue AND j.stream = o.id
                              AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                            ORDER BY j.task, j.queue, j.stream, (-j.priority), j.position LIMIT 1) IS NOT NULL
                        WHEN p_solo = 0 OR cardinality(p_not_tenants) > 0 THEN (
                            SELECT j.id FROM outlast_jobs j
                            WHERE j.task = o.task AND j.queue = o.queue AND j.stream = o.id AND j.position IS NOT NULL
                              AND coalesce(j.aged, j.position) >= o.floor
                              AND j.solo <= 0 AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                            ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) IS NOT NULL
                        ELSE true END
                  ORDER BY o.task, o.queue, o.rank, o.turn LIMIT p_limit) h
              UNION ALL
              SELECT o.id, o.queue, o.rank, o.turn
              FROM unnest(p_offered) AS u (id)
              CROSS JOIN LATERAL (SELECT * FROM outlast_streams o WHERE o.id = u.id ORDER BY o.id DESC, o.turn DESC LIMIT 1) o
              WHERE o.task = ANY (p_tasks)
                AND CASE WHEN p_solo > 0 THEN (
                        SELECT j.id FROM outlast_jobs j
                        WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo AND coalesce(j.position, 0) > 0
                          AND j.task = o.task AND j.queue = o.queue AND j.stream = o.id
                          AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                        ORDER BY j.task, j.queue, j.stream, (-j.priority), j.position LIMIT 1) IS NOT NULL
                    WHEN p_solo = 0 THEN (
                        SELECT j.id FROM outlast_jobs j
                        WHERE j.task = o.task AND j.queue = o.queue AND j.stream = o.id AND j.position IS NOT NULL
                          AND coalesce(j.aged, j.position) >= o.floor
                          AND j.solo <= 0 AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) IS NOT NULL
                    ELSE true END) h
        ORDER BY first DESC, nth, h.turn LIMIT p_limit
    ), chosen AS MATERIALIZED (
        SELECT o.id, o.ctid AS row, o.task, o.queue, o.needs, o.permits, o.costs, o.touched_at, o.ordered, o.holder, o.floor, k.first
        FROM (SELECT k.id, k.turn, k.first FROM candidate k ORDER BY k.first DESC, k.nth, k.turn) k
        JOIN outlast_streams o ON o.id = ANY (ARRAY[k.id]) AND o.turn = k.turn)
    SELECT l.*, f.*,
           (SELECT CASE WHEN count(*) >= 256 THEN min(a.queue) END
            FROM (SELECT a.queue FROM area a WHERE a.queue <> ALL (p_not_queues) ORDER BY a.queue DESC LIMIT 256) a) AS reached
    INTO s
    FROM (SELECT array_agg(l.id) AS ids, array_agg(l.row) AS rows, array_agg(l.task) AS tasks, array_agg(l.queue) AS queues,
                 array_agg(l.needs) AS needs, array_agg(l.touched_at) AS since, array_agg(l.ordered) AS ordered, array_agg(l.holder) AS holders, array_agg(l.floor) AS floors, bool_or(l.ordered) AS any_ordered,
                 bool_or(cardinality(l.permits) > 1) AS any_several,
                 count(*) FILTER (WHERE l.first)::integer AS turns
          FROM chosen l) l,
         (SELECT array_agg(u.permit) AS permits, array_agg(u.cost) AS costs, array_agg(u.n::integer) AS streams
          FROM (SELECT u.permit, u.cost, l.n FROM (SELECT l.permits, l.costs, row_number() OVER () AS n FROM chosen l) l
                CROSS JOIN LATERAL unnest(l.permits, l.costs) AS u (permit, cost) ORDER BY l.n, u.permit) u) f;
    reached := coalesce(s.reached, '');
    IF s.ids IS NULL THEN
        more := s.reached IS NULL AND p_from <> '';  -- these were the last pairs: the next round begins with the first
        RETURN;
    END IF;
    left_over := '{}';
    IF NOT p_offered <@ s.ids THEN left_over := ARRAY(SELECT u FROM unnest(p_offered) AS u WHERE u <> ALL (s.ids)); END IF;
    v_holders := array_fill(NULL::bigint, ARRAY[cardinality(s.ids)]);
    v_waits := array_fill(false, ARRAY[cardinality(s.ids)]);
    v_begun := v_holders;
    IF s.any_ordered THEN
        SELECT array_agg(j.id ORDER BY u.n), array_agg(coalesce(j.waits, false) ORDER BY u.n) INTO v_holders, v_waits
        FROM unnest(s.ids, s.holders) WITH ORDINALITY AS u (id, holder, n)
        LEFT JOIN LATERAL (
            SELECT o.id, o.position IS NULL AS waits FROM outlast_jobs o
            WHERE o.id = ANY (ARRAY[u.holder]) AND o.stream = u.id AND o.ended_at IS NULL) j ON true;
    END IF;

    FOR i IN 1..2 LOOP
        SELECT array_agg(u.id) AS ids, array_agg(o.row) AS rows, bool_or(o.id IS NULL) AS lacks,
               bool_or((SELECT w.id FROM outlast_streams w WHERE w.blocked = u.id AND w.id <> ALL (s.ids)
                        ORDER BY w.blocked DESC, w.rank DESC, w.turn DESC LIMIT 1) IS NOT NULL) AS wanted, array_agg(l.spacing) AS spacing, array_agg(l.burst) AS burst,
               array_agg(greatest(0, o.tat - greatest(v_now, o.touched_at))) AS ahead,
               array_agg(CASE WHEN l.name IS NULL OR o.held_until > greatest(v_now, o.touched_at) OR l.held_until > v_now
                                   OR o.opens_at > v_now AND o.opens_at IS DISTINCT FROM o.kept_until AND o.touched_at <= v_now + 1 THEN 0
                              ELSE greatest(0, least(1000000000, coalesce(o.own_running, l.running) - o.used - k.count)) END) AS free,
               array_agg(coalesce(o.own_running, l.running)) AS places, array_agg(o.used) AS used,
               array_agg(CASE WHEN k.count = 1 THEN o.kept_for END) AS kept, array_agg(CASE WHEN o.touched_at <= v_now + 1 THEN coalesce(o.kept_until, 0) ELSE 0 END) AS kept_until
        INTO p
        FROM (SELECT DISTINCT u.id FROM unnest(s.permits) AS u (id)) u
        LEFT JOIN LATERAL (SELECT o.ctid AS row, o.* FROM outlast_permits o WHERE o.id = u.id ORDER BY o.id DESC, o.version DESC LIMIT 1) o ON true
        CROSS JOIN LATERAL (SELECT (o.kept_for IS NOT NULL AND o.kept_until > greatest(v_now, o.touched_at))::integer AS count) k
        LEFT JOIN outlast_limits l ON l.name = o.name;
        EXIT WHEN i = 2 OR p.lacks IS NOT TRUE;
        PERFORM outlast_make_permits_v1(s.needs, v_now);
    END LOOP;
    permits := coalesce(p.ids, '{}');

    -- share the places out by turn (share_out in model/limits.py)
    v_free := p.free;
    v_ahead := p.ahead;
    v_kept := p.kept;
    v_kept_until := p.kept_until;
    v_free_at_first := p.free;
    v_used := p.used;
    v_share := greatest(1, p_limit / greatest(1, s.turns));
    FOR i IN 1..cardinality(s.ids) LOOP
        v_room := least(v_share, v_left);
        IF s.ordered[i] THEN v_room := least(v_room, (NOT v_waits[i])::integer); END IF;
        v_rest := false;
        v_seconds := least(0.5 * (v_now - s.since[i]), 1e15);
        v_step := v_need;
        WHILE s.streams[v_step] = i LOOP
            v_one := array_position(p.ids, s.permits[v_step]);
            v_at[v_step] := v_one;
            v_starts := outlast_room_v1(v_free[v_one], p.spacing[v_one], p.burst[v_one], v_ahead[v_one], s.costs[v_step]);
            IF v_kept[v_one] = s.ids[i] THEN
                v_starts := outlast_room_v1(v_free[v_one] + 1, p.spacing[v_one], p.burst[v_one], v_ahead[v_one], s.costs[v_step]);
            END IF;
            IF v_starts > 0 THEN
                v_rest := true;
            ELSIF v_free[v_one] > 0 THEN
                IF (v_ahead[v_one] + (s.costs[v_step] - p.burst[v_one]) * p.spacing[v_one] <= v_seconds) IS NOT TRUE
                   OR s.costs[v_step] > p.burst[v_one] THEN
                    v_seconds := 0;
                END IF;
            ELSIF (p.places[v_one] > 0 AND v_used[v_one] >= p.places[v_one]) IS NOT TRUE THEN
                v_seconds := 0;
            END IF;
            -- the stream lacks only time: no later stream passes it
            IF v_starts <= 0 AND s.costs[v_step] <= p.burst[v_one] THEN v_free[v_one] := 0; END IF;
            v_room := least(v_room, v_starts);
            v_step := v_step + 1;
        END LOOP;
        v_quota[i] := v_room;
        v_rest := v_rest AND v_quota[i] = 0 AND v_seconds > 0 AND v_left > 0 AND NOT v_waits[i];
        WHILE v_need < v_step LOOP
            v_one := v_at[v_need];
            IF v_quota[i] > 0 AND v_kept[v_one] = s.ids[i] THEN
                v_kept[v_one] := NULL;
                v_kept_until[v_one] := v_now;
                v_free[v_one] := v_free[v_one] + 1;
                v_free_at_first[v_one] := v_free_at_first[v_one] + 1;
            ELSIF v_rest AND v_kept[v_one] IS NULL AND p.places[v_one] IS NOT NULL AND v_now - v_kept_until[v_one] >= v_seconds
                  AND outlast_room_v1(v_free[v_one], p.spacing[v_one], p.burst[v_one], v_ahead[v_one], s.costs[v_need]) > 0 THEN
                v_kept[v_one] := s.ids[i];
                v_kept_until[v_one] := v_now + v_seconds;
                v_free[v_one] := v_free[v_one] - 1;
                v_free_at_first[v_one] := v_free_at_first[v_one] - 1;
            END IF;
            IF v_quota[i] > 0 THEN
                v_free[v_at[v_need]] := v_free[v_at[v_need]] - v_quota[i];
                v_used[v_at[v_need]] := v_used[v_at[v_need]] + v_quota[i];
                v_ahead[v_at[v_need]] := v_ahead[v_at[v_need]]
                    + v_quota[i] * s.costs[v_need] * coalesce(p.spacing[v_at[v_need]], 0);
            END IF;
            v_need := v_need + 1;
        END LOOP;
        v_left := v_left - v_quota[i];
    END LOOP;

    started := date_part('epoch', clock_timestamp());
    SELECT array_agg(l.id) FILTER (WHERE l.fits) AS ids, array_agg(l.row) FILTER (WHERE l.fits) AS rows,
           array_agg(l.position) FILTER (WHERE l.fits) AS positions, array_agg(NULL::bigint) FILTER (WHERE l.fits) AS shown,
           coalesce(array_agg(l.stream::integer) FILTER (WHERE l.fits), '{}') AS of,
           sum(l.size) FILTER (WHERE l.fits) AS bytes, coalesce(bool_or(NOT l.fits), false) AS cut
    INTO ids, rows, positions, shown, v_of, bytes, cut
    FROM (SELECT l.id, l.row, l.position, l.place, l.stream, l.size,
                 sum(l.size) OVER read <= p_bytes_max OR row_number() OVER read = 1 AND p_is_first AS fits
          FROM (SELECT o.id, o.row, o.position, o.place, o.size, u.n AS stream
                FROM unnest(s.ids, s.tasks, s.queues, v_quota, v_holders, s.floors) WITH ORDINALITY AS u (id, task, queue, quota, holder, floor, n)
                CROSS JOIN LATERAL (
                    SELECT o.id, o.ctid AS row, o.position, coalesce(o.aged, o.position) AS place, octet_length(o.args) + coalesce(octet_length(o.checkpoint), 0) AS size
                    FROM outlast_jobs o
                    WHERE o.task = u.task AND o.queue = u.queue AND o.stream = u.id AND o.solo <= 0
                      AND coalesce(o.aged, o.position) >= u.floor
                      AND o.position IS NOT NULL AND (o.tenant IS NULL OR o.tenant <> ALL (p_not_tenants))
                      AND (o.expires_at IS NULL OR o.expires_at > outlast_claim_streams_v1.started)
                    ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT u.quota
                    FOR NO KEY UPDATE SKIP LOCKED) o
                WHERE u.quota > 0 AND u.holder IS NULL AND coalesce(p_solo, 0) = 0
                UNION ALL
                SELECT o.id, o.row, o.position, o.place, o.size, u.n
                FROM unnest(s.ids, s.tasks, s.queues, v_quota, v_holders) WITH ORDINALITY AS u (id, task, queue, quota, holder, n)
                CROSS JOIN LATERAL (
                    SELECT o.id, o.ctid AS row, o.position, coalesce(o.aged, o.position) AS place, octet_length(o.args) + coalesce(octet_length(o.checkpoint), 0) AS size
                    FROM outlast_jobs o
                    WHERE o.state = 'queued' AND o.solo > 0 AND o.solo = p_solo AND coalesce(o.position, 0) > 0
                      AND o.task = u.task AND o.queue = u.queue AND o.stream = u.id
                      AND (o.tenant IS NULL OR o.tenant <> ALL (p_not_tenants))
                      AND (o.expires_at IS NULL OR o.expires_at > outlast_claim_streams_v1.started)
                    ORDER BY o.task, o.queue, o.stream, (-o.priority), o.position LIMIT u.quota
                    FOR NO KEY UPDATE SKIP LOCKED) o
                WHERE u.quota > 0 AND u.holder IS NULL AND p_solo > 0
                UNION ALL
                SELECT o.id, o.row, o.position, o.place, o.size, u.n
                FROM unnest(s.ids, v_quota, v_holders) WITH ORDINALITY AS u (id, quota, holder, n)
                CROSS JOIN LATERAL (
                    SELECT o.id, o.ctid AS row, o.position, o.position AS place, octet_length(o.args) + coalesce(octet_length(o.checkpoint), 0) AS size
                    FROM outlast_jobs o
                    WHERE o.id = ANY (ARRAY[u.holder]) AND o.stream = u.id AND o.position IS NOT NULL
                      AND greatest(0, o.solo) = coalesce(p_solo, 0) AND (o.tenant IS NULL OR o.tenant <> ALL (p_not_tenants))
                      AND (o.expires_at IS NULL OR o.expires_at > outlast_claim_streams_v1.started)
                    FOR NO KEY UPDATE SKIP LOCKED) o
                WHERE u.quota > 0 AND u.holder IS NOT NULL) l
          WINDOW read AS (ORDER BY l.stream, l.place)) l;

    v_taken := array_fill(0, ARRAY[cardinality(s.ids)]);
    v_blocked := array_fill(NULL::bigint, ARRAY[cardinality(s.ids)]);
    FOR i IN 1..cardinality(v_of) LOOP
        v_taken[v_of[i]] := v_taken[v_of[i]] + 1;
        v_begun[v_of[i]] := ids[i];
    END LOOP;
    IF s.any_ordered THEN
        FOR i IN 1..cardinality(s.ids) LOOP
            IF s.ordered[i] AND (v_waits[i] OR v_taken[i] > 0) THEN v_blocked[i] := -2; END IF;
        END LOOP;
    END IF;
    IF p.ids IS NOT NULL THEN
        v_free := v_free_at_first;
        v_ahead := p.ahead;
        v_count := array_fill(0, ARRAY[cardinality(p.ids)]);
        FOR i IN 1..cardinality(s.streams) LOOP
            v_step := v_at[i];
            v_room := v_taken[s.streams[i]];
            CONTINUE WHEN v_room = 0;
            v_free[v_step] := v_free[v_step] - v_room;
            v_ahead[v_step] := v_ahead[v_step] + v_room * s.costs[i] * coalesce(p.spacing[v_step], 0);
            v_count[v_step] := v_count[v_step] + v_room;
        END LOOP;
        UPDATE outlast_permits o
        SET version = nextval('outlast_turn_seq'), used = o.used + u.count, tat = v_now + u.ahead, touched_at = v_now,
            held_until = CASE WHEN o.held_until > greatest(v_now, o.touched_at)
                              THEN v_now + o.held_until - greatest(v_now, o.touched_at) END,
            kept_for = u.kept, kept_until = u.kept_until
        FROM unnest(p.rows, v_count, v_ahead, v_kept, v_kept_until) AS u (row, count, ahead, kept, kept_until)
        WHERE o.ctid = u.row AND (u.count > 0 OR u.kept_until <> coalesce(o.kept_until, 0));
        FOR i IN 1..cardinality(s.streams) LOOP
            v_step := v_at[i];
            CONTINUE WHEN v_blocked[s.streams[i]] IS NOT NULL;
            IF outlast_room_v1(v_free[v_step] + coalesce(v_kept[v_step] = s.ids[s.streams[i]], false)::integer,
                               p.spacing[v_step], p.burst[v_step], v_ahead[v_step], s.costs[i]) <= 0 THEN
                v_blocked[s.streams[i]] := s.permits[i];
            END IF;
        END LOOP;
    END IF;
    v_turns := cardinality(s.ids) >= p_limit OR s.any_several OR s.reached IS NOT NULL OR p_from <> ''
        OR p_passed <> '{}' OR 0 = ANY (v_quota) OR coalesce(p.wanted, false);
    WITH seen AS (
        UPDATE outlast_streams o
        SET turn = CASE WHEN u.quota > 0 THEN nextval('outlast_turn_seq') ELSE o.turn END,
            touched_at = CASE WHEN u.quota > 0 THEN v_now ELSE least(o.touched_at, v_now) END, idle = u.idle,
            holder = u.holder, blocked = CASE WHEN NOT u.idle THEN u.blocked END, floor = coalesce(u.first, o.floor)
        FROM (SELECT u.*, u.quota > 0 AND (u.blocked IS NULL OR u.blocked <> -2) AND u.taken >= j.count AS idle, j.first
              FROM (SELECT u.*, CASE WHEN u.ordered THEN coalesce(u.begun, u.held) END AS holder
                    FROM unnest(s.ids, s.tasks, s.queues, v_quota, v_taken, v_blocked, s.ordered, v_begun, v_holders, s.floors, s.rows)
                         AS u (id, task, queue, quota, taken, blocked, ordered, begun, held, floor, row)) u
              CROSS JOIN LATERAL (
                  SELECT count(*) AS count, min(w.place) AS first
                  FROM (SELECT coalesce(w.aged, w.position) AS place FROM outlast_jobs w
                        WHERE w.task = u.task AND w.queue = u.queue AND w.stream = u.id
                          AND w.position IS NOT NULL AND coalesce(w.aged, w.position) >= u.floor
                        ORDER BY w.task, w.queue, w.stream, coalesce(w.aged, w.position)
                        LIMIT CASE WHEN u.quota > 0 THEN u.taken + 1 ELSE 0 END) w) j OFFSET 0) u  -- OFFSET: idle is computed once
        WHERE o.ctid = u.row
          AND (u.quota > 0 AND (v_turns OR u.first::double precision - o.floor > 500)
               OR u.taken < u.quota OR o.touched_at > v_now
               OR (o.idle, o.blocked, o.holder) IS DISTINCT FROM (u.idle, CASE WHEN NOT u.idle THEN u.blocked END, u.holder))
        RETURNING o.id, u.taken < u.quota AND NOT u.idle AS passed)
    SELECT coalesce(array_agg(n.id) FILTER (WHERE n.passed), '{}') INTO passed FROM seen n;
    more := ids IS NOT NULL OR num_nonnulls(VARIADIC v_blocked) > 0 OR passed <> '{}';
END
$$;
