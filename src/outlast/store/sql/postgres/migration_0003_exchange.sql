-- 0003 exchange: hand in what ended, take what can run next, in one round trip and one commit.
-- compatible_from: 0.1
--
-- Each statement of a volatile function sees a snapshot of its own (READ COMMITTED), so a later
-- step sees what others committed while an earlier one waited. In order:
--
-- 1  The worker's own row, by id, epoch and status, FOR KEY SHARE. A reap and a reconnect take
--    FOR UPDATE and raise the epoch: whoever comes second waits, looks at the row again and, if it
--    is the exchange, claims nothing. Beats (plain updates) do not conflict with KEY SHARE.
-- 2  Ends, judged by their own token alone (see 0002). Plain completions, the hot path, come as
--    arrays and leave no evidence row: their facts stay on the job. Rows that somebody holds are
--    tried again after 2, 4 and 8 ms: a claim elsewhere whose snapshot is a little old locks the
--    newest version of a row before it sees that the job is taken, and keeps that lock to its
--    commit. Whatever is held longer, as by a task's own transaction, is answered busy.
-- 3  Ends that were not accepted are looked at again and answered busy, already or refused.
-- 4  Jobs that have fallen due join the line, at its end.
-- 5  Claims, by priority and position (the functions are in 0002). Two claims never meet: each skips
--    what the other holds, and a row that was claimed since the snapshot has lost its position when
--    it is looked at again.
--    Locking and changing are two statements, so that the second works on what the first locked.
--    What messages have named comes first, within its priority.
--    The line is read lane by lane (queue, task, priority), so that jobs which nobody knows slow
--    nobody. The caller says which lanes it knows, and a floor for each: below it, it has found
--    nothing for a while. Rows that have left the line are in the index until a vacuum may take
--    them, which it may not while any transaction is open, and a scan from the head of a lane
--    walks over all of them; one from the floor does not. Floors are hints and nothing else: a
--    job below one (its transaction was open while later ones were claimed) is only found by a
--    look without floors, which the caller takes once a second. Lanes that the caller does not
--    know are found at once, by one probe for each gap between known ones: no row, alive or dead,
--    is in a gap unless it is of a new lane. A floor that is too high delays, and never loses; what
--    is claimed is judged by the row alone.
--    The token is drawn while the worker's row is held, so that raise_tokens, which locks out all
--    holders of that table, can never make the sequence step back.
-- 6  Suspects, for rooms that ask for them (solo > 0): out of their own index and never out of the
--    line, where they have no position. One look at that index tells, for most exchanges, that
--    there are none. The first that is due names its cohort; what another worker claims of it at
--    the same time runs there: a cohort that is split is only smaller.
-- 7  Own running jobs with a cancel request.
-- 8  When the next scheduled job, or suspect, falls due.
--
-- The only lock that is waited for is the first: no deadlock with cancel, reap or enqueue.

-- Queues that have jobs in the line, and queues that have scheduled jobs: loose index scans, one
-- probe per queue however long they are.
CREATE FUNCTION outlast_line_queues_v1() RETURNS text[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE q (queue) AS (
            (SELECT queue FROM outlast_jobs WHERE position IS NOT NULL ORDER BY queue LIMIT 1)
            UNION ALL
            SELECT (SELECT j.queue FROM outlast_jobs j
                    WHERE j.position IS NOT NULL AND j.queue > q.queue ORDER BY j.queue LIMIT 1)
            FROM q WHERE q.queue IS NOT NULL)
        SELECT queue FROM q WHERE queue IS NOT NULL);
END
$$;

CREATE FUNCTION outlast_due_queues_v1() RETURNS text[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE q (queue) AS (
            (SELECT queue FROM outlast_jobs
             WHERE state = 'queued' AND position IS NULL AND solo = 0 ORDER BY queue LIMIT 1)
            UNION ALL
            SELECT (SELECT j.queue FROM outlast_jobs j
                    WHERE j.state = 'queued' AND j.position IS NULL AND j.solo = 0
                      AND j.queue > q.queue
                    ORDER BY j.queue LIMIT 1)
            FROM q WHERE q.queue IS NOT NULL)
        SELECT queue FROM q WHERE queue IS NOT NULL);
END
$$;

-- Put due jobs of these queues into the line; returns their ids. At most 500 per queue and call.
CREATE FUNCTION outlast_promote_v1(p_queues text[], p_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.id, d.run_at
        FROM unnest(p_queues) AS q (queue)
        CROSS JOIN LATERAL (
            SELECT j.id, j.run_at FROM outlast_jobs j
            WHERE j.queue = q.queue AND j.state = 'queued' AND j.position IS NULL AND j.solo = 0
              AND j.run_at <= p_now
            ORDER BY j.run_at LIMIT 500
            FOR NO KEY UPDATE SKIP LOCKED) d
    ), numbered AS MATERIALIZED (
        SELECT s.id, nextval('outlast_position_seq') AS position
        FROM (SELECT id FROM due ORDER BY run_at, id) s
    ), promoted AS (
        UPDATE outlast_jobs j SET position = n.position
        FROM numbered n WHERE j.id = n.id
        RETURNING j.id)
    SELECT array_agg(id) INTO v_ids FROM promoted;
    RETURN v_ids;
END
$$;

-- Lanes (queue, task) that have suspects of this kind, among these tasks and queues (none: all):
-- one probe per lane, however many suspects.
CREATE FUNCTION outlast_suspect_lanes_v1(p_solo integer, p_tasks text[], p_queues text[])
RETURNS TABLE (queue text, task text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE lane (queue, task) AS (
        (SELECT j.queue, j.task FROM outlast_jobs j
         WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
         ORDER BY j.solo, j.queue, j.task LIMIT 1)
        UNION ALL
        SELECT n.queue, n.task
        FROM lane l
        CROSS JOIN LATERAL (
            SELECT j.queue, j.task FROM outlast_jobs j
            WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
              AND (j.queue, j.task) > (l.queue, l.task)
            ORDER BY j.solo, j.queue, j.task LIMIT 1) n)
    SELECT l.queue, l.task FROM lane l
    WHERE l.task = ANY (p_tasks) AND (cardinality(p_queues) = 0 OR l.queue = ANY (p_queues));
END
$$;

-- The suspect of this kind that is next: by priority, then by the time since when it is due.
CREATE FUNCTION outlast_first_suspect_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_id bigint;
BEGIN
    SELECT f.id INTO v_id
    FROM outlast_suspect_lanes_v1(p_solo, p_tasks, p_queues) l
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.run_at FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
          AND j.queue = l.queue AND j.task = l.task AND j.run_at <= p_now
        ORDER BY j.priority DESC, j.run_at LIMIT 1) f
    ORDER BY f.priority DESC, f.run_at, f.id LIMIT 1;
    RETURN v_id;
END
$$;

-- Lock what a room for suspects takes: the first that is due, and those of its cohort that this
-- worker can run, too. With solo 2 that is one job: it has no company. Candidates are looked for
-- without locks; what has changed since is not locked.
CREATE FUNCTION outlast_next_suspects_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_limit integer, p_now timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_first bigint := outlast_first_suspect_v1(p_solo, p_tasks, p_queues, p_now);
    v_incident bigint;
    v_cohort bigint;
    v_ids bigint[];
BEGIN
    IF v_first IS NULL THEN RETURN NULL; END IF;
    v_ids := ARRAY[v_first];
    IF p_solo = 1 THEN
        SELECT j.incident, j.cohort INTO v_incident, v_cohort
        FROM outlast_jobs j WHERE j.id = v_first;
        v_ids := v_ids || ARRAY(
            SELECT j.id FROM outlast_jobs j
            WHERE j.incident = v_incident AND j.cohort = v_cohort AND j.id <> v_first
              AND j.state = 'queued' AND coalesce(j.solo, 0) = 1 AND j.run_at <= p_now
              AND j.task = ANY (p_tasks)
              AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues)));
    END IF;
    SELECT array_agg(l.id ORDER BY l.id) INTO v_ids
    FROM (SELECT m.id
          FROM (SELECT u.id FROM unnest(v_ids) AS u (id) LIMIT p_limit) w
          JOIN outlast_jobs m ON m.id = w.id AND m.state = 'queued' AND m.solo = p_solo
          FOR NO KEY UPDATE OF m SKIP LOCKED) l;
    RETURN v_ids;
END
$$;

-- When the next suspect of this kind falls due.
CREATE FUNCTION outlast_next_suspect_due_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_now timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_due timestamptz;
BEGIN
    SELECT min(j.run_at) INTO v_due
    FROM outlast_suspect_lanes_v1(p_solo, p_tasks, p_queues) l
    JOIN outlast_jobs j
      ON j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
     AND j.queue = l.queue AND j.task = l.task AND j.run_at > p_now;
    RETURN v_due;
END
$$;

CREATE FUNCTION outlast_exchange_v1(
    p_worker bigint, p_epoch integer,
    p_done_ids bigint[], p_done_tokens bigint[], p_done_results text[],
    p_ends text, p_rooms text, p_notify boolean, p_claims_max integer, p_refusals_kept integer,
    p_lanes text)
RETURNS TABLE (
    head text, job_id bigint, token bigint, task text, queue text, args text, number integer,
    failures integer, losses integer, policy text, tenant text, checkpoint text, priority smallint,
    solo smallint, incident bigint, cohort bigint, place bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_status text;
    v_valid boolean;
    v_now timestamptz;
    v_ids bigint[] := '{}';
    v_tokens bigint[] := '{}';
    v_runnable bigint[];
    v_clears bigint[];
    v_more bigint[];
    v_handed integer := cardinality(p_done_ids);
    v_others json;
    v_busy integer := 0;
    v_room record;
    v_queues text[];
    v_queue text;
    v_left integer;
    v_count integer;
    v_claimed integer := 0;
    v_next timestamptz;
    v_due timestamptz;
    v_most integer;
    v_waiting integer := 0;
    v_new json;
    v_lane_queues text[];
    v_lane_tasks text[];
    v_lane_ranks smallint[];
    v_lane_floors bigint[];
    v_tasks text[];
    v_ranks smallint[];
    v_floors bigint[];
    v_places bigint[];
BEGIN
    -- 1
    SELECT w.status INTO v_status FROM outlast_workers w
    WHERE w.id = p_worker AND w.epoch = p_epoch AND w.status IN ('active', 'draining')
    FOR KEY SHARE;
    v_valid := FOUND;
    v_now := clock_timestamp();

    -- 2
    IF p_ends IS NOT NULL THEN v_handed := v_handed + json_array_length(p_ends::json); END IF;
    FOR v_try IN 1..4 LOOP
        EXIT WHEN v_handed = cardinality(v_ids);
        IF v_try > 1 THEN
            EXIT WHEN NOT EXISTS (
                SELECT FROM unnest(p_done_ids, p_done_tokens) AS h (job_id, token)
                JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token
                WHERE j.state = 'running'
                UNION ALL
                SELECT FROM json_to_recordset(coalesce(p_ends, '[]')::json)
                     AS h (job_id bigint, token bigint)
                JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token
                WHERE j.state = 'running');
            PERFORM pg_sleep(0.001 * 2 ^ (v_try - 1));
        END IF;
        IF cardinality(p_done_ids) > 0 THEN
            WITH locked AS MATERIALIZED (
                SELECT h.job_id, h.result
                FROM unnest(p_done_ids, p_done_tokens, p_done_results)
                     AS h (job_id, token, result)
                JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token AND j.state = 'running'
                FOR NO KEY UPDATE OF j SKIP LOCKED
            ), done AS (
                UPDATE outlast_jobs j
                SET state = 'completed', ended_at = v_now, result = l.result,
                    completed_by = j.worker_id, worker_id = NULL, hard_deadline = NULL
                FROM locked l WHERE j.id = l.job_id
                RETURNING j.id, j.token)
            SELECT v_ids || coalesce(array_agg(id), '{}'), v_tokens || coalesce(array_agg(token), '{}')
            INTO v_ids, v_tokens FROM done;
        END IF;
        IF p_ends IS NOT NULL THEN
            SELECT v_ids || coalesce(array_agg(e.job_id), '{}'),
                   v_tokens || coalesce(array_agg(e.token), '{}'),
                   v_runnable || array_agg(e.job_id) FILTER (WHERE e.runnable),
                   v_clears || array_agg(e.clears) FILTER (WHERE e.clears IS NOT NULL)
            INTO v_ids, v_tokens, v_runnable, v_clears
            FROM outlast_end_v1(p_ends) e;
        END IF;
    END LOOP;
    IF v_clears IS NOT NULL THEN
        v_runnable := v_runnable || outlast_clear_v1(v_clears);
    END IF;

    -- 3
    IF v_handed > cardinality(v_ids) THEN
        SELECT json_agg(json_build_array(g.job_id, g.token, g.answer)),
               count(*) FILTER (WHERE g.answer = 'busy')
        INTO v_others, v_busy
        FROM (
            SELECT array_agg(h.job_id) AS ids, array_agg(h.token) AS tokens,
                   array_agg(h.outcome) AS outcomes
            FROM (SELECT d.job_id, d.token, 'completed' AS outcome
                  FROM unnest(p_done_ids, p_done_tokens) AS d (job_id, token)
                  UNION ALL
                  SELECT r.job_id, r.token, r.outcome
                  FROM json_to_recordset(coalesce(p_ends, '[]')::json)
                       AS r (job_id bigint, token bigint, outcome text)) h
            WHERE NOT EXISTS (
                SELECT FROM unnest(v_ids, v_tokens) AS a (job_id, token)
                WHERE a.job_id = h.job_id AND a.token = h.token)) m
        CROSS JOIN LATERAL outlast_judge_v1(
            m.ids, m.tokens, m.outcomes, 'end', p_refusals_kept) g;
    END IF;

    IF v_valid AND v_status = 'active' AND p_rooms <> '[]' THEN
        -- the largest kind of solo run that anything waits for; NULL for most exchanges
        SELECT j.solo INTO v_most FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.solo > 0
        ORDER BY j.solo DESC LIMIT 1;

        FOR v_room IN
            SELECT r.tasks, r."limit", r.queues, coalesce(r.solo, 0) AS solo,
                   cardinality(r.queues) = 0 AS everywhere, r.named
            FROM json_to_recordset(p_rooms::json)
                 AS r (tasks text[], "limit" integer, queues text[], solo integer, named bigint[])
            WHERE coalesce(r.solo, 0) <= coalesce(v_most, 0)
        LOOP
            v_left := least(v_room."limit" - v_busy, p_claims_max - v_claimed);
            CONTINUE WHEN v_left <= 0;

            -- 4
            v_more := NULL;
            v_queues := v_room.queues;
            IF v_room.everywhere THEN v_queues := outlast_due_queues_v1(); END IF;
            IF v_room.solo = 0 AND cardinality(v_queues) > 0 THEN
                v_more := outlast_promote_v1(v_queues, v_now);
                IF v_more IS NOT NULL THEN v_runnable := v_runnable || v_more; END IF;
                SELECT min(d.run_at) INTO v_due
                FROM unnest(v_queues) AS q (queue)
                CROSS JOIN LATERAL (
                    SELECT j.run_at FROM outlast_jobs j
                    WHERE j.queue = q.queue AND j.state = 'queued' AND j.position IS NULL AND j.solo = 0
                      AND j.run_at > v_now
                    ORDER BY j.run_at LIMIT 1) d;
            END IF;

            IF v_room.solo = 0 AND (v_lane_queues IS NULL OR v_more IS NOT NULL) THEN
                SELECT array_agg(l.queue), array_agg(l.task), array_agg(l.rank), array_agg(l.low),
                       json_agg(json_build_array(l.queue, l.task, l.rank)) FILTER (WHERE l.new)
                INTO v_lane_queues, v_lane_tasks, v_lane_ranks, v_lane_floors, v_new
                FROM outlast_lanes_v1(p_lanes::json) l;
            END IF;

            -- 5; queues in random order, so that a long one starves no other
            v_queues := '{""}';
            IF v_room.solo = 0 THEN
                v_queues := ARRAY(
                    SELECT l.queue
                    FROM unnest(v_lane_queues, v_lane_tasks) AS l (queue, task)
                    WHERE l.task = ANY (v_room.tasks)
                      AND (v_room.everywhere OR l.queue = ANY (v_room.queues))
                    GROUP BY l.queue ORDER BY random());
            END IF;
            IF cardinality(v_room.named) > 0 THEN v_queues := NULL::text || v_queues; END IF;
            FOREACH v_queue IN ARRAY v_queues LOOP
                v_places := NULL;
                IF v_room.solo > 0 THEN  -- 6
                    v_more := outlast_next_suspects_v1(
                        v_room.solo, v_room.tasks, v_room.queues, v_left, v_now);
                    v_due := outlast_next_suspect_due_v1(
                        v_room.solo, v_room.tasks, v_room.queues, v_now);
                ELSIF v_queue IS NULL THEN
                    v_more := outlast_named_v1(
                        v_room.named, v_room.tasks, v_room.queues, v_left);
                ELSE
                    SELECT array_agg(l.task), array_agg(l.rank), array_agg(l.low)
                    INTO v_tasks, v_ranks, v_floors
                    FROM unnest(v_lane_queues, v_lane_tasks, v_lane_ranks, v_lane_floors)
                         AS l (queue, task, rank, low)
                    WHERE l.queue = v_queue AND l.task = ANY (v_room.tasks);
                    SELECT n.ids, n.positions INTO v_more, v_places
                    FROM outlast_next_v1(v_queue, v_tasks, v_ranks, v_floors, v_left) n;
                END IF;
                CONTINUE WHEN v_more IS NULL;
                RETURN QUERY
                WITH numbered AS MATERIALIZED (
                    SELECT n.id, n.place, nextval('outlast_token_seq') AS token
                    FROM unnest(v_more, v_places) WITH ORDINALITY AS n (id, place, ord))
                UPDATE outlast_jobs j
                SET state = 'running', token = n.token, attempt_count = j.attempt_count + 1,
                    worker_id = p_worker, started_at = clock_timestamp(), position = NULL,
                    hard_deadline = CASE WHEN j.timeout IS NOT NULL THEN
                        clock_timestamp() + least(j.timeout, 1e9) * interval '1 second' END,
                    progress = NULL, checkpoint_number = 0
                FROM numbered n WHERE j.id = n.id
                RETURNING NULL::text, j.id, j.token, j.task, j.queue, j.args, j.attempt_count,
                          j.failures, j.losses, j.policy, j.tenant, j.checkpoint, j.priority,
                          j.solo, j.incident, j.cohort, n.place;
                GET DIAGNOSTICS v_count = ROW_COUNT;
                v_claimed := v_claimed + v_count;
                v_left := v_left - v_count;
                EXIT WHEN v_left <= 0;
            END LOOP;
            IF v_left > 0 AND v_due IS NOT NULL THEN v_next := least(v_next, v_due); END IF;
            v_due := NULL;
        END LOOP;

        FOR v_solo IN REVERSE coalesce(v_most, 0)..1 LOOP
            IF EXISTS (
                SELECT FROM json_to_recordset(p_rooms::json) AS r (tasks text[], queues text[])
                WHERE outlast_first_suspect_v1(v_solo, r.tasks, r.queues, v_now) IS NOT NULL)
            THEN
                v_waiting := v_solo;
                EXIT;
            END IF;
        END LOOP;
    END IF;

    IF p_notify AND v_runnable IS NOT NULL THEN
        PERFORM outlast_notify_v1(v_runnable);
    END IF;

    -- 7, 8
    RETURN QUERY SELECT
        json_build_object(
            'valid', v_valid,
            'others', coalesce(v_others, '[]'::json),
            'cancels', coalesce((
                SELECT json_agg(json_build_array(j.id, j.token)) FROM outlast_jobs j
                WHERE j.worker_id = p_worker AND j.cancel_requested), '[]'::json),
            'next_due', extract(epoch FROM v_next - v_now),
            'solo_waiting', v_waiting,
            'lanes', coalesce(v_new, '[]'::json))::text,
        NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer,
        NULL::integer, NULL::integer, NULL::text, NULL::text, NULL::text, NULL::smallint,
        NULL::smallint, NULL::bigint, NULL::bigint, NULL::bigint;
END
$$;
