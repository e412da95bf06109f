-- Fold notices: apply them to the streams and permits that can be locked, and delete them. p_ended: the streams of
-- attempts that this transaction has ended without a notice; it leaves one where a permit cannot be locked. Returns the permits that
-- are locked now and blocked streams, at which the caller looks before its commit (outlast_leave_permits_v1), the
-- streams that are open now, whether a notice stays because a row is held elsewhere, and whether there may be more
-- than p_most notices, or than p_most streams of paused tenants before others. (Arrivals are announced where they are put
-- into their streams.) p_tasks, p_queues (empty: all), p_not_queues, p_not_tenants: the jobs that the caller may claim.
-- Runs inside outlast_prepare_claim_v1, under the planner settings of outlast_exchange_v1.
--
-- Nothing here waits. A notice is folded whole or stays: rows of streams, permits and notices that another session
-- holds are passed over (SKIP LOCKED), and that session, or a later exchange, folds it. Why that is right:
--   * Another exchange folds at the same time: it skips the notices that this one holds, so each is done once. If this
--     transaction ends without a commit, its changes and the deletion are undone together.
--   * A claim that marks a stream idle at this moment holds the stream's row, so this cannot lock it and keeps the
--     notice of the arrival; the row is locked even if it looks open, since that claim may be about to commit.
--   * A claim that marks a stream blocked holds the permit's row to its commit, so this cannot lock the permit and
--     keeps the notice; once it can, the statement that reads what the permit blocks comes after the lock and sees it.
--   * A stream or permit that is not there holds nothing: it was deleted because it was not in use (prune.sql), and an
--     arrival makes it again. A permit's count is at least the number of its ends that are noted, so none is deleted
--     before these are folded.
--   * A clock that was set back: what a permit has ahead of it, and how long it is held, counts from the time at which
--     it was last written (touched_at), if that is later than now; the permit is then found here as if it had opened.
--     A hold that is still a notice lasts no longer than was asked for (held_for).
--
-- The newest hold of a person counts, and a later one of a task that has found the limit exhausted (it also says what is
-- spent) if it is longer.
--
-- A permit with room opens as many of the streams that it blocks, by rank and turn; a cost above the burst never fits,
-- and holds up none. If the caller can claim none of them (no live worker may serve them, or their queue or tenant is
-- paused), it opens as many that the caller can claim, of 256 pairs of each of its tasks with a queue that is not paused,
-- however many others stand before them; of paused tenants it opens those that stand before them, too, p_most at most, so
-- that the next fold goes on behind those. If the fold meets as many notices as it takes at most, those that stay are appended
-- again, one for each stream, in their order, so that notices of rows that stay locked hide no others.
CREATE FUNCTION outlast_fold_v1(
    p_now double precision, p_most integer, p_ended bigint[], p_tasks text[], p_queues text[], p_not_queues text[],
    p_not_tenants text[], OUT permits bigint[], OUT opened bigint[], OUT stayed boolean, OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_all record; v_ends record; v_arrived bigint[]; v_free bigint[] := '{}'; v_idle bigint[]; v_new record; v_stay bigint[] := '{}';
    v_targets bigint[]; v_held bigint[] := '{}'; v_look bigint[]; v_open record; v_more bigint[];
BEGIN
    permits := '{}';
    opened := '{}';
    stayed := false;
    more := false;
    SELECT array_agg(n.ctid) AS rows, array_agg(n.stream) AS streams, array_agg(n.permit) AS permits,
           array_agg(n.ended) AS ended, array_agg(n.arrived) AS arrived,
           array_agg(n.spent) AS spent, array_agg(least(n.held_until, p_now + n.held_for)) AS held, bool_or(n.arrived) AS any_arrived
    INTO v_all
    FROM (SELECT n.ctid, n.* FROM outlast_notices n ORDER BY n.id LIMIT p_most FOR UPDATE SKIP LOCKED) n;

    IF v_all.any_arrived THEN
        v_arrived := ARRAY(SELECT DISTINCT u.stream FROM unnest(v_all.streams, v_all.arrived) AS u (stream, arrived)
                           WHERE u.arrived AND u.stream IS NOT NULL);
        SELECT coalesce(array_agg(l.id), '{}'), array_agg(l.id) FILTER (WHERE l.idle OR l.blocked = -2) INTO v_free, v_idle
        FROM (SELECT s.id, s.idle, s.blocked FROM unnest(v_arrived) AS u (id) JOIN outlast_streams s ON s.id = ANY (ARRAY[u.id])
              FOR NO KEY UPDATE OF s SKIP LOCKED) l;
        IF v_idle IS NOT NULL THEN
            UPDATE outlast_streams s SET idle = false, blocked = nullif(s.blocked, -2), touched_at = p_now WHERE s.id = ANY (v_idle);
        END IF;
        IF cardinality(v_free) < cardinality(v_arrived) THEN
            SELECT array_agg(n.stream ORDER BY n.id) AS ids, array_agg(n.task ORDER BY n.id) AS tasks,
                   array_agg(n.queue ORDER BY n.id) AS queues
            INTO v_new
            FROM (SELECT DISTINCT ON (n.stream, n.task, n.queue) n.id, n.stream, n.task, n.queue
                  FROM unnest(v_all.rows) AS r (row) JOIN outlast_notices n ON n.ctid = r.row
                  WHERE n.arrived AND n.stream IS NOT NULL
                    AND NOT EXISTS (SELECT FROM outlast_streams s WHERE s.id = n.stream)
                  ORDER BY n.stream, n.task, n.queue, n.id) n;
            IF v_new.ids IS NOT NULL THEN
                v_more := outlast_make_streams_v1(v_new.ids, v_new.tasks, v_new.queues, p_now);
                v_free := v_free || v_more;
            END IF;
            v_stay := ARRAY(SELECT u FROM unnest(v_arrived) AS u EXCEPT SELECT u FROM unnest(v_free) AS u);
        END IF;
    END IF;

    -- the permits that notices are about, and those that have opened by now
    SELECT array_agg(e.stream) AS streams, array_agg(x.permit) AS permits, array_agg(e.ended::integer) AS ended
    INTO v_ends
    FROM (SELECT u.stream, sum(u.ended) AS ended
          FROM unnest(v_all.streams, v_all.ended) AS u (stream, ended) WHERE u.ended <> 0 GROUP BY u.stream
          UNION ALL
          SELECT u, count(*) FROM unnest(p_ended) AS u GROUP BY u) e
    JOIN outlast_streams s ON s.id = ANY (ARRAY[e.stream]) CROSS JOIN LATERAL unnest(s.permits) AS x (permit);
    v_targets := ARRAY(
        SELECT u FROM unnest(v_ends.permits) AS u
        UNION
        SELECT u FROM unnest(v_all.permits) AS u WHERE u IS NOT NULL
        UNION
        SELECT t.id FROM (SELECT p.id, p.opens_at, p.touched_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL
                          ORDER BY p.opens_at LIMIT p_most) t
        WHERE t.opens_at <= p_now OR t.touched_at > p_now + 1);
    IF v_targets <> '{}' THEN
        permits := ARRAY(
            SELECT p.id FROM unnest(v_targets) AS u (id) JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id])
            FOR NO KEY UPDATE OF p SKIP LOCKED);
        IF cardinality(permits) < cardinality(v_targets) THEN
            v_held := ARRAY(SELECT p.id FROM unnest(v_targets) AS u (id) JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id])
                            WHERE p.id <> ALL (permits));
            IF v_held <> '{}' THEN
                v_stay := v_stay || ARRAY(
                    SELECT s.id FROM (SELECT DISTINCT u FROM unnest(v_all.streams || p_ended) AS u WHERE u IS NOT NULL) u (id)
                    JOIN outlast_streams s ON s.id = ANY (ARRAY[u.id]) WHERE s.permits && v_held);
            END IF;
        END IF;
        UPDATE outlast_permits p
        SET used = p.used - c.ended,
            tat = least(1e15, p_now + greatest(0, greatest(0, p.tat - greatest(p_now, p.touched_at))
                                      + CASE WHEN c.spent <> 0 THEN coalesce(c.spent * (SELECT l.spacing FROM outlast_limits l WHERE l.name = p.name), 0) ELSE 0 END)),
            held_until = nullif(greatest(p_now, c.held, CASE WHEN c.set_at IS NULL AND p.held_until > greatest(p_now, p.touched_at)
                                                             THEN p_now + p.held_until - greatest(p_now, p.touched_at) END), p_now),
            opens_at = NULL, touched_at = p_now, kept_for = CASE WHEN p.touched_at <= p_now + 1 THEN p.kept_for END,
            kept_until = CASE WHEN p.touched_at <= p_now + 1 THEN p.kept_until END
        FROM (SELECT c.permit, sum(c.ended)::integer AS ended, sum(c.spent) AS spent,
                     max(c.held) AS held, max(c.set_at) AS set_at
              FROM (SELECT u.permit, u.ended, 0 AS spent, NULL::double precision AS held, NULL::bigint AS set_at
                    FROM unnest(v_ends.streams, v_ends.permits, v_ends.ended) AS u (stream, permit, ended)
                    WHERE u.stream <> ALL (v_stay)
                    UNION ALL
                    SELECT u.permit, 0, u.spent, CASE WHEN u.n >= coalesce(u.set_at, 0) THEN u.held END, u.set_at
                    FROM (SELECT u.*, max(u.n) FILTER (WHERE u.held IS NOT NULL AND u.spent IS NULL) OVER (PARTITION BY u.permit) AS set_at
                          FROM unnest(v_all.permits, v_all.spent, v_all.held) WITH ORDINALITY AS u (permit, spent, held, n)
                          WHERE u.permit IS NOT NULL) u
                    UNION ALL
                    SELECT u, 0, 0, NULL, NULL FROM unnest(permits) AS u) c
              WHERE c.permit = ANY (permits) GROUP BY c.permit) c
        WHERE p.id = ANY (ARRAY[c.permit])
          AND (c.ended <> 0 OR c.spent <> 0 OR c.held IS NOT NULL OR p.opens_at IS NOT NULL OR p.touched_at > p_now + 1);

        permits := ARRAY(SELECT u FROM unnest(permits) AS u
                         WHERE (SELECT s.blocked FROM outlast_streams s WHERE s.blocked = u LIMIT 1) IS NOT NULL);
        v_look := permits;
        -- open streams that permits with room block, by rank and turn; if the caller can claim none, others that it can
        FOR v_own IN 0..1 LOOP
            SELECT array_agg(f.permit) AS permits, array_agg(f.stream) AS streams, array_agg(f.own) AS own INTO v_open
            FROM (SELECT t.id AS permit, b.id AS stream, b.own
                  FROM (SELECT p.id, l.spacing, l.burst, greatest(0, p.tat - greatest(p_now, p.touched_at)) AS ahead,
                               least(p_most, coalesce(p.own_running, l.running) - p.used
                                   - (p.kept_for IS NOT NULL AND p.kept_until > p_now)::integer) AS room
                        FROM unnest(v_look) AS u (id) JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id])
                        JOIN outlast_limits l ON l.name = coalesce(p.name, '')  -- coalesce: permits by id alone
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
                                          AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
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
            v_more := ARRAY(SELECT s.id FROM unnest(v_open.streams, v_open.permits) AS u (stream, permit)
                            JOIN outlast_streams s ON s.id = ANY (ARRAY[u.stream]) AND coalesce(s.blocked, 0) = u.permit
                            FOR NO KEY UPDATE OF s SKIP LOCKED);
            UPDATE outlast_streams s SET blocked = NULL WHERE s.id = ANY (v_more);
            opened := opened || v_more;
            v_look := ARRAY(SELECT u.permit FROM unnest(v_open.permits, v_open.own) AS u (permit, own)
                            GROUP BY u.permit HAVING NOT bool_or(u.own));
            EXIT WHEN v_look = '{}';
            more := v_own = 1;  -- those of paused tenants alone
        END LOOP;
    END IF;

    stayed := v_stay <> '{}' OR v_held <> '{}';
    more := more OR coalesce(cardinality(v_all.rows), 0) >= p_most;
    IF v_stay <> '{}' THEN
        PERFORM outlast_leave_ends_v1(ARRAY(SELECT u FROM unnest(p_ended) AS u WHERE u = ANY (v_stay)));
    END IF;
    IF v_all.rows IS NULL THEN RETURN; END IF;
    IF v_stay = '{}' AND v_held = '{}' THEN
        DELETE FROM outlast_notices n WHERE n.ctid = ANY (v_all.rows);
    ELSE
        WITH gone AS (
            DELETE FROM outlast_notices n WHERE n.ctid = ANY (v_all.rows)
                AND (cardinality(v_all.rows) >= p_most
                     OR (n.stream = ANY (v_stay)) IS NOT TRUE AND (n.permit = ANY (v_held)) IS NOT TRUE)
            RETURNING n.*)
        INSERT INTO outlast_notices (stream, permit, ended, arrived, task, queue, spent, held_until, held_for)
        SELECT g.stream, g.permit, sum(g.ended), bool_or(g.arrived), g.task, g.queue,
               sum(g.spent), max(g.held_until), max(g.held_for)
        FROM gone g
        WHERE g.stream = ANY (v_stay) OR g.permit = ANY (v_held)
        GROUP BY g.stream, g.permit, g.task, g.queue, CASE WHEN g.held_until IS NOT NULL THEN g.id END ORDER BY min(g.id);
    END IF;
END
$$;
