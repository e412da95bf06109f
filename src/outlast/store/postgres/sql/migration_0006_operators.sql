-- 0006 operators: cancel, requeue, and the jump of the token sequence.
-- compatible_from: 0.1

-- Cancel queued jobs, ask running ones. Rows are locked in the order of their ids, so that two of
-- these never deadlock; exchange and reclaim wait for no row at all. Locking and changing are two
-- statements, so that the second sees what was committed while the first waited: a job claimed a
-- moment ago is asked, one completed a moment ago has ended. (In one statement the new row was seen
-- to be checked against the constraints as a mixture of both versions.)
--
-- Without p_wait, rows that are locked are answered 'held' and left as they are: so one row that
-- stays locked keeps no other job from being cancelled. Then those are waited for, without the others.
CREATE FUNCTION outlast_cancel_v1(p_ids bigint[], p_notify boolean, p_wait boolean)
RETURNS TABLE (job_id bigint, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_free bigint[];
    v_ids bigint[];
    v_states text[];
    v_workers bigint[];
BEGIN
    IF p_wait THEN
        PERFORM FROM outlast_jobs j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE;
        v_free := p_ids;
    ELSE
        SELECT coalesce(array_agg(l.id), '{}') INTO v_free
        FROM (SELECT j.id FROM outlast_jobs j WHERE j.id = ANY (p_ids)
              ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) l;
    END IF;

    SELECT array_agg(j.id), array_agg(CASE WHEN j.id = ANY (v_free) THEN j.state ELSE 'held' END),
           array_agg(DISTINCT j.worker_id)
               FILTER (WHERE j.worker_id IS NOT NULL AND j.id = ANY (v_free))
    INTO v_ids, v_states, v_workers
    FROM outlast_jobs j WHERE j.id = ANY (p_ids);

    UPDATE outlast_jobs j
    SET cancel_requested = true, position = NULL,
        state = CASE WHEN j.state = 'queued' THEN 'cancelled' ELSE j.state END,
        ended_at = CASE WHEN j.state = 'queued' THEN clock_timestamp() END
    WHERE j.id = ANY (v_free) AND j.state IN ('queued', 'running');

    IF p_notify AND v_workers IS NOT NULL THEN
        PERFORM pg_notify('outlast', 'cancel:' || w::text) FROM unnest(v_workers) AS w;
    END IF;
    RETURN QUERY
    SELECT s.id, CASE s.state WHEN 'queued' THEN 'cancelled' WHEN 'running' THEN 'requested'
                              WHEN 'held' THEN 'held' ELSE 'ended' END
    FROM unnest(v_ids, v_states) AS s (id, state);
END
$$;

-- Revive dead and cancelled jobs, one by one in the order of their ids. The unique index on the
-- keys of unfinished jobs decides a race with an enqueue of the same key; the loser's row is left
-- as it was. Tokens and the count of attempts go on rising, the budgets start again, suspicion ends.
CREATE FUNCTION outlast_requeue_v1(p_ids bigint[], p_from_scratch boolean, p_notify boolean)
RETURNS TABLE (job_id bigint, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
    v_state text;
    v_revived bigint[] := '{}';
BEGIN
    FOREACH v_id IN ARRAY ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i ORDER BY i) LOOP
        SELECT j.state INTO v_state FROM outlast_jobs j WHERE j.id = v_id FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        job_id := v_id;
        answer := CASE v_state WHEN 'dead' THEN 'requeued' WHEN 'cancelled' THEN 'requeued'
                               WHEN 'completed' THEN 'completed' ELSE 'not_ended' END;
        IF answer = 'requeued' THEN
            BEGIN
                UPDATE outlast_jobs j
                SET state = 'queued', position = nextval('outlast_position_seq'),
                    run_at = clock_timestamp(), failures = 0, losses = 0,
                    solo = 0, incident = NULL, cohort = NULL, started_at = NULL,
                    ended_at = NULL, cancel_requested = false, progress = NULL,
                    checkpoint = CASE WHEN p_from_scratch THEN NULL ELSE j.checkpoint END,
                    checkpoint_at = CASE WHEN p_from_scratch THEN NULL ELSE j.checkpoint_at END
                WHERE j.id = v_id;
                v_revived := v_revived || v_id;
            EXCEPTION WHEN unique_violation THEN
                answer := 'key_taken';
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF p_notify THEN PERFORM outlast_notify_v1(v_revived); END IF;
END
$$;

-- Make every later token larger than p_above. Mostly they are already: a worker that reconnects hands
-- in the newest token it has seen, and the next one is larger. Then nothing is locked or written.
--
-- A sequence that is behind by at most p_drawn tokens, as after a failover, is drawn forward: nextval
-- never steps back, even if more is drawn beside it. ROW SHARE on the workers' table, as an exchange holds
-- it, keeps this away from the jump below, and from nothing else.
--
-- One that is further behind, as after a restore, jumps by setval, which could step back below what was
-- drawn since the look. Tokens are drawn only under ROW SHARE (an exchange holds its worker's row);
-- EXCLUSIVE waits for all who hold it and keeps new ones out, so nothing is drawn between look and
-- jump. Beats wait for it, too: so it waits half a second at most, and the caller tries again.
-- Callers must hold no lock on outlast_workers yet.
CREATE FUNCTION outlast_raise_tokens_v1(p_above bigint, p_drawn bigint DEFAULT 100000) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '500ms'
AS $$
DECLARE
    v_behind bigint;
BEGIN
    SELECT p_above - last_value + CASE WHEN is_called THEN 0 ELSE 1 END INTO v_behind
    FROM outlast_token_seq;
    IF v_behind <= 0 THEN RETURN; END IF;
    IF v_behind <= p_drawn THEN
        LOCK TABLE outlast_workers IN ROW SHARE MODE;
        PERFORM count(nextval('outlast_token_seq')) FROM generate_series(1, v_behind);
    ELSE
        LOCK TABLE outlast_workers IN EXCLUSIVE MODE;
        PERFORM setval('outlast_token_seq', p_above) FROM outlast_token_seq
        WHERE last_value <= p_above;
    END IF;
END
$$;

-- Draw the incarnation of a database that has none: after a crash, a failover or a restore, of its files or
-- of a dump.
-- The tail of the log may be lost then, and with it claims and the tokens that they drew (a standby
-- that lags, or synchronous_commit = off). So before it is drawn no exchange claims anything, and with
-- it tokens jump: above the time of day in microseconds, which a store of less than a million claims a
-- second cannot have reached by then, neither here nor on another server that was the primary since.
-- The jump is no part of the transaction: it is done when others can see the row. Of several at once one
-- draws the row and the others wait for its commit; should that break off, the next one jumps again.
CREATE FUNCTION outlast_begin_incarnation_v1() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM outlast_incarnation i WHERE i.home = i.tableoid) THEN RETURN; END IF;
    INSERT INTO outlast_incarnation (home) VALUES ('outlast_incarnation'::regclass)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM outlast_raise_tokens_v1(greatest(
            last_value + 1000000, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
        FROM outlast_token_seq;
    END IF;
END
$$;

-- Lock those of the named jobs that wait in the line and that this request can take; answers as
-- outlast_next_v1, but for the positions. A job is passed over while one of a larger priority, and
-- of these tasks, stands in its queue's line: a message cannot jump that. (coalesce leaves the primary key as the only way to an
-- id.)
CREATE FUNCTION outlast_named_v1(
    p_ids bigint[], p_tasks text[], p_queues text[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT j.id, j.queue, j.priority
        FROM unnest(p_ids) AS n (id)
        JOIN outlast_jobs j ON j.id = n.id AND coalesce(j.position, 0) > 0
        WHERE j.task = ANY (p_tasks)
          AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues))
    ), first AS MATERIALIZED (
        SELECT q.queue, max(h.priority) AS priority
        FROM (SELECT DISTINCT w.queue FROM wanted w) q
        CROSS JOIN unnest(p_tasks) AS t (task)
        CROSS JOIN LATERAL (
            SELECT j.priority FROM outlast_jobs j
            WHERE j.task = t.task AND j.queue = q.queue AND j.position IS NOT NULL
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) h
        GROUP BY q.queue)
    SELECT array_agg(l.id ORDER BY l.priority DESC, l.position),
           array_agg(l.ctid ORDER BY l.priority DESC, l.position), sum(l.bytes)
    INTO ids, rows, bytes
    FROM (SELECT j.id, j.ctid, j.priority, j.position,
                 octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
          FROM wanted w
          JOIN first f ON f.queue = w.queue AND w.priority >= f.priority
          JOIN outlast_jobs j ON j.id = w.id AND coalesce(j.position, 0) > 0
          LIMIT p_limit
          FOR NO KEY UPDATE OF j SKIP LOCKED) l;
END
$$;

-- What waits to be announced: the first of each queue's line that no worker has taken for a
-- while, and what is due and in no line: scheduled jobs that were not put into it, and suspects.
-- Of those that are due it is the first and the last: what is due for ever, since no worker serves its
-- queue, must not hide what has just fallen due.
-- The first row holds the number of active workers and the seconds to the next scheduled job.
CREATE FUNCTION outlast_waiting_v1(p_grace double precision, p_limit integer)
RETURNS TABLE (id bigint, queue text, task text, token bigint, seconds double precision)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_grace interval := p_grace * interval '1 second';
BEGIN
    RETURN QUERY
    SELECT NULL::bigint, NULL::text, NULL::text,
           (SELECT count(*) FROM outlast_workers w WHERE w.status = 'active'),
           outlast_seconds_v1(
               (SELECT j.run_at FROM outlast_jobs j
                WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
                  AND j.run_at > v_now
                ORDER BY j.run_at LIMIT 1), v_now);
    RETURN QUERY
    WITH RECURSIVE lane (task, queue, rank) AS (
        (SELECT j.task, j.queue, -j.priority FROM outlast_jobs j WHERE j.position IS NOT NULL
         ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
        UNION ALL
        SELECT n.task, n.queue, n.rank
        FROM lane l
        CROSS JOIN LATERAL (
            SELECT j.task, j.queue, -j.priority AS rank FROM outlast_jobs j
            WHERE j.position IS NOT NULL
              AND (j.task, j.queue, (-j.priority)) > (l.task, l.queue, l.rank)
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n
    ), head AS (
        SELECT h.*, row_number() OVER (PARTITION BY l.queue ORDER BY l.rank, h.position) AS place
        FROM lane l
        CROSS JOIN LATERAL (
            SELECT j.* FROM outlast_jobs j
            WHERE j.task = l.task AND j.queue = l.queue AND (-j.priority) = l.rank
              AND j.position IS NOT NULL
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit) h)
    SELECT f.id, f.queue, f.task, coalesce(f.token, 0), outlast_seconds_v1(v_now, f.run_at)
    FROM head f
    WHERE f.place <= p_limit AND f.run_at <= v_now - v_grace
    UNION ALL
    SELECT f.id, f.queue, f.task, coalesce(f.token, 0), outlast_seconds_v1(v_now, f.run_at)
    FROM ((SELECT j.id, j.queue, j.task, j.token, j.run_at FROM outlast_jobs j
           WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0 AND j.run_at <= v_now
           ORDER BY j.run_at LIMIT p_limit)
          UNION
          (SELECT j.id, j.queue, j.task, j.token, j.run_at FROM outlast_jobs j
           WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0 AND j.run_at <= v_now
           ORDER BY j.run_at DESC LIMIT p_limit)) f
    UNION ALL
    SELECT f.id, f.queue, f.task, coalesce(f.token, 0), outlast_seconds_v1(v_now, f.run_at)
    FROM (SELECT j.* FROM outlast_jobs j
          WHERE j.state = 'queued' AND j.solo > 0
          ORDER BY j.solo, j.queue, j.task, j.priority DESC, j.run_at LIMIT p_limit) f
    WHERE f.run_at <= v_now;
END
$$;
