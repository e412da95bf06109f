-- Fold notices: apply them to streams and permits, and delete them. p_ended: the streams of attempts that this
-- transaction has ended without a notice. Returns the checked permits that block streams, which the caller checks again
-- before its commit (outlast_leave_permits_v1), the streams that are open now, which of these the caller can claim
-- from and has to open itself (offered: see outlast_claim_streams_v1), and whether there may be more than p_most
-- notices, or than p_most streams of paused tenants before others. (Arrivals are announced where they are put into
-- their streams.) p_tasks, p_queues (empty: all), p_not_queues, p_not_tenants: the jobs that the caller may claim. Runs
-- inside outlast_prepare_claim_v1, under the planner settings of outlast_exchange_v1.
--
-- The caller has the keeper lock (outlast_keeper_lock_v1), so no other session writes these rows. Why this is right:
--   * Others append notices at the same time: the next exchange folds a notice that is not committed yet. If this
--     transaction ends without a commit, its changes and the deletion of notices are undone together.
--   * A claim that marked a stream idle or blocked had the lock before, so its writes are seen here; each arrival, end
--     or change that it did not see has left a notice, which is folded here or later.
--   * A stream's floor: an arrival's notice names the first place that it brings, and takes the floor back to it. A
--     notice without a place, as anyone may write one, takes the floor away.
--   * A late worker, a reap: a refused end changes no row and leaves no notice (outlast_note_v1).
--   * A stream or permit without a row has nothing to release: the row was deleted because it was not in use
--     (prune.sql), and an arrival makes it again. A permit's count is at least the number of its noted ends, so no
--     permit is deleted before these are folded.
--   * A clock that was set back: the starts that a permit has ahead of it, and its hold, count from the time at which
--     it was last written (touched_at), if that is later than now; the permit is then treated as if it had opened. A
--     hold that is still a notice lasts no longer than was asked for (held_for).
--
-- A hold by a task (Throttled) counts only if it is longer than the hold that is on the row. A place is kept for a
-- stream (outlast_claim_streams_v1) no longer than a job waits in it that is not paused.
--
-- A permit with room opens as many of the streams that it blocks, by rank and turn; a cost above the burst can never
-- start, so it blocks no other job. If the caller can claim from none of these streams (perhaps no live worker serves
-- them, or their queue or tenant is paused), the permit also opens as many that the caller can claim from, in 256 pairs
-- of each of its tasks with a queue that is not paused, however many others come first. It also opens streams of paused
-- tenants that come first, at most p_most, so that the next fold continues behind those.
CREATE FUNCTION outlast_fold_v1(
    p_now double precision, p_most integer, p_ended bigint[], p_tasks text[], p_queues text[], p_not_queues text[],
    p_not_tenants text[], OUT permits bigint[], OUT opened bigint[], OUT offered bigint[], OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_all record; v_ends record; v_new record; v_targets bigint[]; v_look bigint[]; v_open record;
BEGIN
    permits := '{}';
    opened := '{}';
    offered := '{}';
    WITH gone AS (
        DELETE FROM outlast_notices n
        WHERE n.ctid = ANY (ARRAY(SELECT o.ctid FROM outlast_notices o ORDER BY o.id LIMIT p_most))
        RETURNING n.*)
    SELECT array_agg(g.stream) AS streams, array_agg(g.permit) AS permits, array_agg(g.ended) AS ended,
           array_agg(g.arrived) AS arrived, array_agg(g.task) AS tasks, array_agg(g.queue) AS queues, array_agg(g.place) AS places,
           array_agg(g.spent) AS spent, array_agg(least(g.held_until, p_now + g.held_for)) AS held, bool_or(g.arrived) AS any_arrived
    INTO v_all
    FROM (SELECT * FROM gone ORDER BY id) g;
    more := coalesce(cardinality(v_all.streams), 0) >= p_most;

    IF v_all.any_arrived THEN
        SELECT array_agg(u.stream) AS ids, array_agg(u.task) AS tasks, array_agg(u.queue) AS queues
        INTO v_new
        FROM (SELECT u.stream, u.task, u.queue, min(u.n) AS n
              FROM unnest(v_all.streams, v_all.tasks, v_all.queues, v_all.arrived) WITH ORDINALITY
                   AS u (stream, task, queue, arrived, n)
              WHERE u.arrived AND u.stream IS NOT NULL GROUP BY u.stream, u.task, u.queue ORDER BY n) u;
        UPDATE outlast_streams s
        SET touched_at = CASE WHEN s.idle OR s.blocked = -2 THEN p_now ELSE s.touched_at END,
            idle = false, blocked = nullif(s.blocked, -2), floor = least(s.floor, u.place)
        FROM (SELECT u.stream, min(coalesce(u.place, -9223372036854775808)) AS place
              FROM unnest(v_all.streams, v_all.places, v_all.arrived) AS u (stream, place, arrived)
              WHERE u.arrived AND u.stream IS NOT NULL GROUP BY u.stream) u
        CROSS JOIN LATERAL (SELECT o.ctid FROM outlast_streams o WHERE o.id = u.stream ORDER BY o.id DESC, o.turn DESC LIMIT 1) k
        WHERE s.ctid = k.ctid AND (s.idle OR s.blocked = -2 OR s.floor > u.place);
        SELECT array_agg(u.id ORDER BY u.n) AS ids, array_agg(u.task ORDER BY u.n) AS tasks,
               array_agg(u.queue ORDER BY u.n) AS queues
        INTO v_new
        FROM unnest(v_new.ids, v_new.tasks, v_new.queues) WITH ORDINALITY AS u (id, task, queue, n)
        WHERE (SELECT s.id FROM outlast_streams s WHERE s.id = u.id ORDER BY s.id DESC, s.turn DESC LIMIT 1) IS NULL;
        IF v_new.ids IS NOT NULL THEN PERFORM outlast_make_streams_v1(v_new.ids, v_new.tasks, v_new.queues, p_now); END IF;
    END IF;

    -- the permits that notices name, and the permits that have opened by now
    SELECT array_agg(x.permit) AS permits, array_agg(e.ended::integer) AS ended
    INTO v_ends
    FROM (SELECT u.stream, sum(u.ended) AS ended
          FROM unnest(v_all.streams, v_all.ended) AS u (stream, ended) WHERE u.ended <> 0 GROUP BY u.stream
          UNION ALL
          SELECT u, count(*) FROM unnest(p_ended) AS u GROUP BY u) e
    CROSS JOIN LATERAL (SELECT o.permits FROM outlast_streams o WHERE o.id = e.stream ORDER BY o.id DESC, o.turn DESC LIMIT 1) s
    CROSS JOIN LATERAL unnest(s.permits) AS x (permit);
    v_targets := ARRAY(
        SELECT u FROM unnest(v_ends.permits) AS u
        UNION
        SELECT u FROM unnest(v_all.permits) AS u WHERE u IS NOT NULL
        UNION
        SELECT t.id FROM (SELECT p.id, p.opens_at, p.touched_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL
                          ORDER BY p.opens_at LIMIT p_most) t
        WHERE t.opens_at <= p_now OR t.touched_at > p_now + 1);
    IF v_targets <> '{}' THEN
        UPDATE outlast_permits p
        SET version = nextval('outlast_turn_seq'), used = p.used - c.ended,
            tat = least(1e15, p_now + greatest(0, greatest(0, p.tat - greatest(p_now, p.touched_at))
                                      + CASE WHEN c.spent <> 0 THEN coalesce(c.spent * (SELECT l.spacing FROM outlast_limits l WHERE l.name = p.name), 0) ELSE 0 END)),
            held_until = nullif(greatest(p_now, c.held, CASE WHEN p.held_until > greatest(p_now, p.touched_at)
                                                             THEN p_now + p.held_until - greatest(p_now, p.touched_at) END), p_now),
            opens_at = NULL, touched_at = p_now, kept_for = CASE WHEN p.touched_at <= p_now + 1 AND EXISTS (
                SELECT FROM outlast_streams s CROSS JOIN LATERAL (
                    SELECT FROM outlast_jobs j
                    WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
                    ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) j
                WHERE s.id = ANY (ARRAY[p.kept_for]) AND NOT EXISTS (
                    SELECT FROM outlast_pauses z
                    WHERE (z.kind, z.name) IN (('queue', s.queue), ('task', s.task), ('tenant', s.tenant))))
                THEN p.kept_for END,
            kept_until = CASE WHEN p.touched_at <= p_now + 1 THEN p.kept_until END
        FROM (SELECT c.permit, sum(c.ended)::integer AS ended, sum(c.spent) AS spent,
                     max(c.held) AS held
              FROM (SELECT u.permit, u.ended, 0 AS spent, NULL::double precision AS held
                    FROM unnest(v_ends.permits, v_ends.ended) AS u (permit, ended)
                    UNION ALL
                    SELECT u.permit, 0, u.spent, u.held
                    FROM unnest(v_all.permits, v_all.spent, v_all.held) AS u (permit, spent, held) WHERE u.permit IS NOT NULL
                    UNION ALL
                    SELECT u, 0, 0, NULL FROM unnest(v_targets) AS u) c
              GROUP BY c.permit) c
        CROSS JOIN LATERAL (SELECT o.ctid FROM outlast_permits o WHERE o.id = c.permit ORDER BY o.id DESC, o.version DESC LIMIT 1) k
        WHERE p.ctid = k.ctid
          AND (c.ended <> 0 OR c.spent <> 0 OR c.held IS NOT NULL OR p.opens_at IS NOT NULL OR p.touched_at > p_now + 1
               OR p.kept_for IS NOT NULL AND p.kept_until > p_now);

        permits := ARRAY(SELECT u FROM unnest(v_targets) AS u
                         WHERE (SELECT s.blocked FROM outlast_streams s WHERE s.blocked = u
                                ORDER BY s.blocked DESC, s.rank DESC, s.turn DESC LIMIT 1) IS NOT NULL);
        v_look := permits;
        -- open streams that permits with room block, by rank and turn; if the caller can claim none, others that it can
        FOR v_own IN 0..1 LOOP
            SELECT array_agg(f.permit) AS permits, array_agg(f.stream) AS streams, array_agg(f.own) AS own INTO v_open
            FROM (SELECT t.id AS permit, b.id AS stream, b.own
                  FROM (SELECT p.id, l.spacing, l.burst, greatest(0, p.tat - greatest(p_now, p.touched_at)) AS ahead,
                               least(p_most, coalesce(p.own_running, l.running) - p.used
                                   - (p.kept_for IS NOT NULL AND p.kept_until > p_now)::integer) AS room
                        FROM unnest(v_look) AS u (id)
                        CROSS JOIN LATERAL (SELECT * FROM outlast_permits o WHERE o.id = u.id ORDER BY o.id DESC, o.version DESC LIMIT 1) p
                        JOIN outlast_limits l ON l.name = coalesce(p.name, '')  -- coalesce: permits are read by id alone
                        WHERE greatest(p.held_until, l.held_until, 0) <= p_now) t
                  CROSS JOIN LATERAL (
                      SELECT greatest(1, outlast_room_v1(t.room, t.spacing, t.burst, t.ahead, 1)) AS most WHERE t.room > 0) r
                  CROSS JOIN LATERAL (
                      SELECT c.id, c.own FROM (
                          SELECT s.id, s.own, count(*) FILTER (WHERE s.own) OVER (ORDER BY s.rank, s.turn, s.id) AS nth,
                                 bool_and(outlast_room_v1(1, t.spacing, t.burst, t.ahead, s.costs[array_position(s.permits, t.id)]) > 0)
                                     OVER (ORDER BY s.rank, s.turn) AS fits
                          FROM (SELECT s.*, s.task = ANY (p_tasks) AND s.queue <> ALL (p_not_queues)
                                    AND (cardinality(p_queues) = 0 OR s.queue = ANY (p_queues))
                                    AND (p_not_tenants = '{}' OR coalesce(s.tenant <> ALL (p_not_tenants), (
                                        SELECT j.id FROM outlast_jobs j
                                        WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
                                          AND coalesce(j.aged, j.position) >= s.floor AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                                        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) IS NOT NULL)) AS own
                          FROM (SELECT s.* FROM (
                                    SELECT s.* FROM outlast_streams s
                                    WHERE v_own = 0 AND s.blocked = t.id
                                      AND (t.spacing IS NULL OR s.costs[array_position(s.permits, t.id)] <= t.burst)
                                    ORDER BY s.blocked, s.rank, s.turn LIMIT r.most) s
                                UNION ALL
                                SELECT s.* FROM (
                                    WITH RECURSIVE lane (task, queue, nth) AS (
                                        SELECT h.* FROM unnest(p_tasks) AS k (task) CROSS JOIN LATERAL (
                                            SELECT s.task, s.queue, 1 FROM outlast_streams s
                                            WHERE v_own = 1 AND cardinality(p_queues) = 0 AND s.blocked = t.id AND s.task = k.task
                                            ORDER BY s.blocked, s.task, s.queue LIMIT 1) h
                                        UNION ALL
                                        SELECT h.* FROM lane l CROSS JOIN LATERAL (
                                            SELECT s.task, s.queue, l.nth + 1 FROM outlast_streams s
                                            WHERE s.blocked = t.id AND s.task = l.task AND s.queue > l.queue
                                            ORDER BY s.blocked, s.task, s.queue LIMIT 1) h
                                        WHERE l.nth < 256 + cardinality(p_not_queues)
                                    ), area AS (
                                        SELECT l.task, l.queue FROM lane l
                                        UNION ALL
                                        SELECT k.task, q.queue FROM unnest(p_tasks) AS k (task), (SELECT DISTINCT u FROM unnest(p_queues) AS u) AS q (queue) WHERE v_own = 1)
                                    SELECT s.* FROM area a CROSS JOIN LATERAL (
                                        SELECT s.* FROM outlast_streams s
                                        WHERE s.blocked = t.id AND s.task = a.task AND s.queue = a.queue
                                          AND (t.spacing IS NULL OR s.costs[array_position(s.permits, t.id)] <= t.burst)
                                        ORDER BY s.blocked, s.task, s.queue, s.rank, s.turn
                                        LIMIT CASE WHEN p_not_tenants = '{}' THEN r.most
                                                   ELSE greatest(r.most, p_most / (SELECT count(*) FROM area)) END) s
                                    WHERE a.queue <> ALL (p_not_queues)) s) s) s) c
                      WHERE c.fits AND c.nth - c.own::integer < t.room) b) f;
            EXIT WHEN v_open.streams IS NULL;
            IF false = ANY (v_open.own) THEN
                offered := offered || ARRAY(SELECT u.id FROM unnest(v_open.streams, v_open.own) AS u (id, own) WHERE u.own);
                UPDATE outlast_streams s SET blocked = NULL WHERE s.id = ANY (v_open.streams) AND s.id <> ALL (offered);
            ELSE
                offered := offered || v_open.streams;
            END IF;
            opened := opened || v_open.streams;
            v_look := ARRAY(SELECT u.permit FROM unnest(v_open.permits, v_open.own) AS u (permit, own)
                            GROUP BY u.permit HAVING NOT bool_or(u.own));
            EXIT WHEN v_look = '{}';
            more := more OR v_own = 1;  -- only streams of paused tenants were opened
        END LOOP;
    END IF;
END
$$;
