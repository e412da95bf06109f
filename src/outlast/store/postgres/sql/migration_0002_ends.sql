-- 0002 ends: the one guard under which an attempt is closed, and the answers to late writes.
-- compatible_from: 0.1
--
-- Functions are versioned by name: a released one never changes, a later program brings _v2.
-- The planner settings on those that are called from outside (inner ones run under them) leave
-- nested loops over index scans as the only way. That is right for 1 row in and for 500, in an
-- empty table and among millions of finished jobs, regardless of the statistics.
--
-- Why an end is right against
--   * another end, a claim, a late worker: the row is locked by (id, token, running). A lock that
--     does not wait (SKIP LOCKED) and finds that the row has changed re-checks exactly these
--     three on the newest version. A token is never drawn twice, so a match is this attempt.
--   * a cancel request after the decision was made: the flag is taken from the locked row, and a
--     way back to the queue becomes `cancelled`.
--   * a save that was accepted and of which the worker never heard: losses are counted from the
--     locked row, and an end by a budget of losses that was forgiven meanwhile is none.
--   * evidence written twice: it comes from RETURNING of the update in the same statement.
--   * deadlock: nothing here waits for a job's row, so the order of locks does not matter.
-- Of a job that runs again and again, the first 10 and the last 20 attempts are kept
-- (store.protocol says the same) and, for ever, those that were charged: attempt n deletes the one
-- of number n - 20, if that was free of charge, and counts it. One probe by (job_id, number) each,
-- never a scan. The older rows were committed before this attempt was claimed, so this snapshot
-- shows them, and none but the holder of the job's row touches them. An end that is sent again
-- after 20 more attempts is answered refused, not already. A delay that grows (doubles_to) doubles
-- with each attempt in a row that has ended in this way. Suspects (solo > 0) go back without a
-- position: only a claim request for suspects finds them. `clears` is returned of ends that were written,
-- and of no others: a late end must not clear any.

-- The seconds from one time to a later one, at most a hundred years of them: an infinite time, which
-- no interval can hold, stops nothing that reads it.
CREATE FUNCTION outlast_seconds_v1(p_later timestamptz, p_earlier timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN isfinite(p_later) AND isfinite(p_earlier)
                THEN greatest(-3.2e9, least(3.2e9, extract(epoch FROM p_later - p_earlier)::float8))
                WHEN p_later = p_earlier THEN 0
                WHEN p_later > p_earlier THEN 3.2e9
                WHEN p_later < p_earlier THEN -3.2e9 END
$$;

CREATE FUNCTION outlast_end_v1(p_ends text)
RETURNS TABLE (job_id bigint, token bigint, runnable boolean, clears bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token, h.outcome, h.charge, h.failures, h.losses, h.result, h.message,
               h.crash, h.pid, coalesce(h.solo, 0) AS solo, h.incident, h.cohort, h.clears,
               CASE WHEN h.state = 'queued'
                      OR h.state = 'dead' AND h.charge = 'loss' AND least(j.losses, 2147483646) + 1 < h.losses
                    THEN CASE WHEN j.cancel_requested THEN 'cancelled' ELSE 'queued' END
                    ELSE h.state END AS state,
               greatest(0, least(coalesce(h.delay, 0), 1e9)) AS delay, h.doubles_to,
               j.worker_id, j.started_at, greatest(0, j.attempt_count) AS attempt_count, j.progress, j.checkpoint_at
        FROM json_to_recordset(p_ends::json) AS h (
                 job_id bigint, token bigint, state text, outcome text, charge text,
                 failures integer, losses integer, delay double precision, result text,
                 message text, crash text, pid integer, solo smallint, incident bigint,
                 cohort bigint, clears bigint, doubles_to double precision)
        JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), known AS MATERIALIZED (
        SELECT l.*, o.token AS old, least(coalesce(p.dropped, 0), 2147483646) + (o.token IS NOT NULL)::integer AS dropped,
               CASE WHEN p.outcome = l.outcome THEN greatest(0, least(p.repeats, 2147483646)) + 1 ELSE 1 END AS repeats
        FROM locked l
        LEFT JOIN LATERAL (
            SELECT a.outcome, a.repeats, a.dropped FROM outlast_attempts a
            WHERE a.job_id = l.job_id AND a.number = l.attempt_count - 1 LIMIT 1) p ON true
        LEFT JOIN LATERAL (
            SELECT a.token FROM outlast_attempts a
            WHERE a.job_id = l.job_id AND a.number = l.attempt_count - 20
              AND a.number > 10 AND a.charge = 'none' AND l.state <> 'completed' LIMIT 1) o ON true
    ), ended AS (
        UPDATE outlast_jobs j
        SET state = l.state,
            failures = l.failures,
            losses = least(j.losses, 2147483646) + CASE l.charge WHEN 'loss' THEN 1 ELSE 0 END,
            solo = l.solo,
            incident = l.incident,
            cohort = l.cohort,
            worker_id = NULL,
            hard_deadline = NULL,
            position = CASE WHEN l.state = 'queued' AND l.delay = 0 AND l.solo = 0
                            THEN nextval('outlast_position_seq') END,
            run_at = CASE WHEN l.state = 'queued'
                          THEN v_now + interval '1 second' * CASE
                              WHEN l.doubles_to > 0
                              THEN least(l.doubles_to, l.delay * 2 ^ least(l.repeats - 1, 20))
                              ELSE l.delay END
                          ELSE j.run_at END,
            started_at = CASE WHEN l.state = 'queued' THEN NULL ELSE l.started_at END,
            ended_at = CASE WHEN l.state = 'queued' THEN NULL ELSE v_now END,
            result = CASE WHEN l.state = 'completed' THEN l.result END,
            completed_by = CASE WHEN l.state = 'completed' THEN l.worker_id END
        FROM known l
        WHERE j.id = l.job_id
        RETURNING l.*, j.position
    ), evidence AS (
        INSERT INTO outlast_attempts (
            token, job_id, number, worker_id, worker, host, pid, outcome, charge, message,
            started_at, ended_at, progress, checkpoint_age, crash, repeats, dropped)
        SELECT e.token, e.job_id, e.attempt_count, e.worker_id, w.name, w.host, e.pid, e.outcome,
               e.charge, coalesce(e.message, ''), e.started_at, v_now, e.progress,
               outlast_seconds_v1(v_now, e.checkpoint_at), e.crash, e.repeats, e.dropped
        FROM ended e LEFT JOIN outlast_workers w ON w.id = e.worker_id
        WHERE e.state <> 'completed'
        ON CONFLICT (token) DO NOTHING
    ), thinned AS (
        DELETE FROM outlast_attempts a USING ended e WHERE a.token = e.old
    )
    SELECT e.job_id, e.token, e.state = 'queued' AND e.delay = 0, e.clears FROM ended e;
END
$$;

-- Suspects of these incidents are innocent: those that are queued join the line, or wait out their
-- pause like others. Returns those that can run now. One that is locked is being claimed,
-- cancelled or cleared: it is left alone and at worst runs alone once more.
CREATE FUNCTION outlast_clear_v1(p_incidents bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_ids bigint[];
BEGIN
    WITH innocent AS MATERIALIZED (
        SELECT j.id, j.run_at <= v_now AS due
        FROM unnest(p_incidents) AS i (incident)
        CROSS JOIN LATERAL (
            SELECT s.id, s.run_at FROM outlast_jobs s
            WHERE s.incident = i.incident AND s.state = 'queued'
              AND coalesce(s.solo, 0) = 1  -- not by the index of all suspects
            FOR NO KEY UPDATE SKIP LOCKED) j
    ), numbered AS MATERIALIZED (
        SELECT s.id, s.due, CASE WHEN s.due THEN nextval('outlast_position_seq') END AS position
        FROM (SELECT id, due FROM innocent ORDER BY id) s
    ), cleared AS (
        UPDATE outlast_jobs j
        SET solo = 0, incident = NULL, cohort = NULL, position = n.position
        FROM numbered n WHERE j.id = n.id
        RETURNING j.id, n.due)
    SELECT array_agg(c.id) INTO v_ids FROM cleared c WHERE c.due;
    RETURN v_ids;
END
$$;

-- What became of writes that were not accepted, seen by a fresh snapshot: `busy` while the row is
-- still this attempt's (its lock was held a moment ago), `already` only for this very end,
-- else `refused`, which is recorded under p_verb (NULL: not recorded). Newest records are kept.
CREATE FUNCTION outlast_judge_v1(
    p_ids bigint[], p_tokens bigint[], p_outcomes text[], p_verb text, p_kept integer)
RETURNS TABLE (job_id bigint, token bigint, answer text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_last bigint;
BEGIN
    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT h.job_id, h.token, coalesce(a.ended_at, j.ended_at) AS ended_at,
               CASE WHEN j.state = 'running' THEN 'busy'
                    WHEN j.state = 'completed'
                         AND h.outcome IN ('completed', 'completion_not_committed') THEN 'already'
                    WHEN a.outcome = h.outcome THEN 'already'
                    ELSE 'refused' END AS answer
        FROM unnest(p_ids, p_tokens, p_outcomes) AS h (job_id, token, outcome)
        LEFT JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token
        LEFT JOIN outlast_attempts a ON a.token = h.token AND a.job_id = h.job_id
    ), noted AS (
        INSERT INTO outlast_refusals (job_id, token, verb, at, late_by)
        SELECT g.job_id, g.token, p_verb, v_now, outlast_seconds_v1(v_now, g.ended_at)
        FROM judged g
        WHERE g.answer = 'refused' AND p_verb IS NOT NULL
    )
    SELECT g.job_id, g.token, g.answer FROM judged g;

    SELECT max(id) INTO v_last FROM outlast_refusals;
    DELETE FROM outlast_refusals WHERE id IN (
        SELECT id FROM outlast_refusals WHERE id <= v_last - p_kept
        ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$$;

-- Wake listeners for those of these jobs that can run now: one notification per queue. A payload
-- is limited to 8000 bytes; a cut one is still a hint. (OFFSET 0 keeps the position out of the
-- choice of the index: a plan was seen that read the whole line to find a few ids.)
CREATE FUNCTION outlast_notify_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('outlast', 'queue:' || left(q.queue, 1000))
    FROM (SELECT DISTINCT j.queue
          FROM unnest(p_ids) AS i (id)
          CROSS JOIN LATERAL (
              SELECT queue, position, state, solo FROM outlast_jobs WHERE id = i.id OFFSET 0) j
          WHERE j.position IS NOT NULL OR (j.state = 'queued' AND j.solo > 0)) q;
END
$$;

-- The line, read lane by lane (queue, task, priority) and from floors: 0003 says under 5 why that is
-- right. These functions run inside of the exchange, under its planner settings.

-- The lanes that a claim request reads next, queue by queue, of its tasks and of its queues (p_only; none: of
-- all): those that the caller knows and, where p_search, those that it does not. They begin with the
-- first queue whose name is not before p_first; mixed tells of each whether its queue has another one
-- of the same rank, so that the two must be merged. fresh: those that were not known.
--
-- Without a search that is all that is known, and the queues before p_first come last. With one, lanes
-- are looked for in the gaps between those that are known, within the tasks of the claim request: one probe
-- for each gap, and one more for each lane that is found. The rank of a lane is the negative of its
-- priority. Its floor is where the probe has found it: the walk over dead entries is not made again.
-- There may be a hundred thousand queues, so the search stops: of each task, p_most lanes are looked
-- for. A queue is passed on when the lanes of all tasks in it are known, since its order counts over
-- all of them, and reached is where the next stretch goes on, behind the last such queue. NULL: that was
-- all, up to before p_before (NULL: to the last). Where p_most lanes are not one whole queue, it is
-- done again for more. A claim request that names its queues has one stretch: of each of them and each task, one probe.
--
-- The bounds of a gap are lanes, and the ends of an area: that is a task, from behind a queue on, or a
-- task in one queue. Nothing is between a name and the same with chr(1) behind it, as PostgreSQL
-- stores no NUL.
CREATE FUNCTION outlast_stretch_v1(
    p_tasks text[], p_only text[],
    p_queues text[], p_lane_tasks text[], p_ranks smallint[], p_floors bigint[],
    p_search boolean, p_first text, p_before text, p_most integer,
    OUT queues text[], OUT tasks text[], OUT ranks smallint[], OUT floors bigint[],
    OUT mixed boolean[], OUT fresh json, OUT reached text)
LANGUAGE plpgsql
AS $$
DECLARE
    v_all boolean := cardinality(p_only) = 0;
    v_most integer := CASE WHEN v_all THEN p_most ELSE 256 END;  -- there are 201 ranks
    v_cut text;
    v_known integer := cardinality(p_queues);
    v_before integer := 0;
BEGIN
    IF NOT p_search AND v_all AND p_lane_tasks[1] = p_lane_tasks[v_known]
        AND p_lane_tasks[1] = ANY (p_tasks)
    THEN  -- all of one task: they are in order, but for whose turn it is
        WHILE v_before < v_known AND p_queues[v_before + 1] COLLATE "C" < p_first LOOP
            v_before := v_before + 1;
        END LOOP;
        queues := p_queues[v_before + 1:] || p_queues[:v_before];
        tasks := p_lane_tasks;
        ranks := p_ranks[v_before + 1:] || p_ranks[:v_before];
        floors := p_floors[v_before + 1:] || p_floors[:v_before];
        mixed := array_fill(false, ARRAY[v_known]);
        RETURN;
    END IF;
    IF NOT p_search THEN
        SELECT array_agg(l.queue), array_agg(l.task), array_agg(l.rank), array_agg(l.low),
               array_agg(l.mixed)
        INTO queues, tasks, ranks, floors, mixed
        FROM (SELECT k.queue, k.task, k.rank, k.low, bool_or(k.alike) OVER (PARTITION BY k.queue) AS mixed
              FROM (SELECT k.queue COLLATE "C" AS queue, k.task, k.rank, k.low,
                           k.rank = lag(k.rank) OVER (
                               PARTITION BY k.queue COLLATE "C" ORDER BY k.rank) AS alike
                    FROM unnest(p_queues, p_lane_tasks, p_ranks, p_floors)
                         AS k (queue, task, rank, low)
                    WHERE k.task = ANY (p_tasks) AND (v_all OR k.queue = ANY (p_only))) k
              ORDER BY k.queue < p_first, k.queue, k.rank) l;
        mixed := array_replace(mixed, NULL, false);
        RETURN;
    END IF;
    LOOP
        WITH known AS MATERIALIZED (
            SELECT k.queue COLLATE "C" AS queue, k.task COLLATE "C" AS task, k.rank, k.low
            FROM unnest(p_queues, p_lane_tasks, p_ranks, p_floors) AS k (queue, task, rank, low)
            WHERE k.task = ANY (p_tasks)
              AND CASE WHEN NOT v_all THEN k.queue = ANY (p_only)
                       ELSE k.queue COLLATE "C" >= p_first
                           AND (p_before IS NULL OR k.queue COLLATE "C" < p_before) END
        ), wanted AS MATERIALIZED (
            SELECT DISTINCT u.task COLLATE "C" AS task FROM unnest(p_tasks) AS u (task)
        ), area AS MATERIALIZED (
            SELECT w.task, '' AS part, p_first COLLATE "C" AS queue, (-32768)::smallint AS rank,
                   CASE WHEN p_before IS NULL THEN w.task || chr(1) ELSE w.task END AS end_task,
                   coalesce(p_before, '') AS end_queue, (-32768)::smallint AS end_rank
            FROM wanted w WHERE v_all
            UNION ALL
            SELECT w.task, n.queue, n.queue, (-32768)::smallint, w.task, n.queue, 32767::smallint
            FROM wanted w CROSS JOIN (SELECT DISTINCT u.queue FROM unnest(p_only) AS u (queue)) n
        ), bound AS (
            SELECT a.task, a.part, a.queue, a.rank FROM area a
            UNION ALL
            SELECT k.task, CASE WHEN v_all THEN '' ELSE k.queue END, k.queue, k.rank FROM known k
        ), gap AS MATERIALIZED (
            SELECT b.task, b.part, b.queue, b.rank,
                   lead(b.queue) OVER next AS end_queue, lead(b.rank) OVER next AS end_rank
            FROM bound b
            WINDOW next AS (PARTITION BY b.task, b.part ORDER BY b.queue, b.rank)
        ), found AS MATERIALIZED (
            SELECT a.task, f.queue, f.rank, f.low
            FROM area a
            CROSS JOIN LATERAL (
                SELECT l.queue, l.rank, l.low
                FROM (SELECT g.queue, g.rank,
                             CASE WHEN g.end_queue IS NULL THEN a.end_task ELSE a.task END AS end_task,
                             coalesce(g.end_queue, a.end_queue) AS end_queue,
                             coalesce(g.end_rank, a.end_rank) AS end_rank
                      FROM gap g WHERE g.task = a.task AND g.part = a.part
                      ORDER BY g.queue, g.rank) g
                CROSS JOIN LATERAL (
                    WITH RECURSIVE lane (queue, rank, low) AS (
                        (SELECT j.queue, -j.priority, j.position FROM outlast_jobs j
                         WHERE j.position IS NOT NULL
                           AND (j.task, j.queue, (-j.priority)) > (a.task, g.queue, g.rank)
                           AND (j.task, j.queue, (-j.priority))
                               < (g.end_task, g.end_queue, g.end_rank)
                         ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
                        UNION ALL
                        SELECT n.queue, n.rank, n.low
                        FROM lane p
                        CROSS JOIN LATERAL (
                            SELECT j.queue, -j.priority AS rank, j.position AS low
                            FROM outlast_jobs j
                            WHERE j.position IS NOT NULL
                              AND (j.task, j.queue, (-j.priority)) > (a.task, p.queue, p.rank)
                              AND (j.task, j.queue, (-j.priority))
                                  < (g.end_task, g.end_queue, g.end_rank)
                            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n)
                    SELECT lane.queue, lane.rank, lane.low FROM lane) l
                LIMIT v_most) f
        ), cut AS MATERIALIZED (  -- from this queue on, there may be more lanes
            SELECT min(c.queue) AS queue
            FROM (SELECT max(f.queue) AS queue FROM found f
                  GROUP BY f.task HAVING v_all AND count(*) >= v_most) c
        ), lane AS MATERIALIZED (
            SELECT l.queue, l.task, l.rank, l.low, l.new
            FROM (SELECT k.queue, k.task, k.rank, k.low, false AS new FROM known k
                  UNION ALL
                  SELECT f.queue, f.task, f.rank, f.low, true FROM found f) l
            CROSS JOIN cut c WHERE c.queue IS NULL OR l.queue < c.queue
        ), alike AS MATERIALIZED (
            SELECT l.queue FROM lane l GROUP BY l.queue HAVING count(*) > count(DISTINCT l.rank))
        SELECT array_agg(l.queue), array_agg(l.task), array_agg(l.rank), array_agg(l.low),
               array_agg(l.mixed),
               json_agg(json_build_array(l.queue, l.task, l.rank, l.low)) FILTER (WHERE l.new),
               (SELECT c.queue FROM cut c)
        INTO queues, tasks, ranks, floors, mixed, fresh, v_cut
        FROM (SELECT l.*, EXISTS (SELECT FROM alike a WHERE a.queue = l.queue) AS mixed
              FROM lane l
              ORDER BY l.queue < p_first, l.queue, l.rank, l.task) l;
        EXIT WHEN v_cut IS NULL OR queues IS NOT NULL;
        v_most := 8 * v_most;
    END LOOP;
    IF v_cut IS NOT NULL THEN reached := queues[cardinality(queues)] || chr(1); END IF;
END
$$;

-- Lock jobs in those of these lanes that the request reads which stand below their floors, in this range
-- of positions; answers as outlast_next_v1. What is there is looked for without locks, one probe for
-- each lane: mostly nothing.
CREATE FUNCTION outlast_below_v1(
    p_tasks text[], p_only text[],
    p_queues text[], p_lane_tasks text[], p_ranks smallint[], p_floors bigint[],
    p_from bigint, p_to bigint, p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_lane record;
BEGIN
    FOR v_lane IN
        SELECT l.queue, l.task, l.rank, least(p_to, l.low) AS top, f.position AS first
        FROM unnest(p_queues, p_lane_tasks, p_ranks, p_floors) AS l (queue, task, rank, low)
        CROSS JOIN LATERAL (
            SELECT j.position FROM outlast_jobs j
            WHERE j.queue = l.queue AND j.task = l.task AND (-j.priority) = l.rank
              AND j.position >= p_from AND j.position < least(p_to, l.low)
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) f
        WHERE l.task = ANY (p_tasks) AND (cardinality(p_only) = 0 OR l.queue = ANY (p_only))
        ORDER BY l.rank
    LOOP
        EXIT WHEN cardinality(ids) = p_limit;
        SELECT ids || array_agg(l.id), rows || array_agg(l.ctid),
               positions || array_agg(l.position), coalesce(bytes, 0) + coalesce(sum(l.bytes), 0)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = v_lane.queue AND j.task = v_lane.task
                AND (-j.priority) = v_lane.rank
                AND j.position >= v_lane.first AND j.position < v_lane.top
              ORDER BY j.task, j.queue, (-j.priority), j.position
              LIMIT p_limit - coalesce(cardinality(ids), 0)
              FOR NO KEY UPDATE SKIP LOCKED) l;
    END LOOP;
END
$$;

-- Lock the next jobs in these lanes, one lane after the other, from their floors on; answers as
-- outlast_next_v1. That is the order of the line where no queue has two of them with the same rank.
CREATE FUNCTION outlast_next_in_turn_v1(
    p_queues text[], p_tasks text[], p_ranks smallint[], p_floors bigint[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
BEGIN
    IF cardinality(p_tasks) = 1 THEN
        SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.position), sum(l.bytes)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = p_queues[1] AND j.task = p_tasks[1] AND (-j.priority) = p_ranks[1]
                AND j.position >= p_floors[1]
              ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) l;
        RETURN;
    END IF;
    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.position), sum(l.bytes)
    INTO ids, rows, positions, bytes
    FROM (SELECT c.id, c.ctid, c.position, c.bytes
          FROM unnest(p_queues, p_tasks, p_ranks, p_floors) AS t (queue, task, rank, low)
          CROSS JOIN LATERAL (
              SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = t.queue AND j.task = t.task AND (-j.priority) = t.rank
                AND j.position >= t.low
              ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) c
          LIMIT p_limit) l;
END
$$;

-- Lock the next jobs of a queue in these lanes of it, from their floors on; returns their ids, where
-- their rows are and their positions, in the order of the line, and how many bytes of arguments and
-- checkpoints they have. (octet_length reads what is in the row: a value that is stored elsewhere has
-- its length beside its address, and is neither fetched nor decompressed.) The heads of the lanes are
-- merged without locks, four times as many as wanted, since others may hold the first; then as many as
-- wanted are locked. Where others hold so many of those that some are still wanted, the lanes are read
-- one after the other as if each were the only one, so that too few come back only where nothing else
-- can be locked: a worker that gets nothing rests for a while. (coalesce leaves the primary key as the
-- only way to an id, and the order that is asked for leaves the line, under any statistics.)
CREATE FUNCTION outlast_next_v1(
    p_queue text, p_tasks text[], p_ranks smallint[], p_floors bigint[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_seen integer;
    v_lane record;
BEGIN
    WITH candidate AS MATERIALIZED (
        SELECT c.id, c.position
        FROM unnest(p_tasks, p_ranks, p_floors) AS t (task, rank, low)
        CROSS JOIN LATERAL (
            SELECT j.id, j.position FROM outlast_jobs j
            WHERE j.queue = p_queue AND j.task = t.task AND (-j.priority) = t.rank
              AND j.position >= t.low
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 4 * p_limit) c
        ORDER BY t.rank, c.position LIMIT 4 * p_limit)
    SELECT array_agg(l.id ORDER BY l.priority DESC, l.position),
           array_agg(l.ctid ORDER BY l.priority DESC, l.position),
           array_agg(l.position ORDER BY l.priority DESC, l.position),
           sum(l.bytes), (SELECT count(*) FROM candidate)
    INTO ids, rows, positions, bytes, v_seen
    FROM (SELECT j.id, j.ctid, j.priority, j.position,
                 octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
          FROM candidate c
          JOIN outlast_jobs j ON j.id = c.id AND coalesce(j.position, 0) = c.position
          ORDER BY j.priority DESC, j.position LIMIT p_limit
          FOR NO KEY UPDATE OF j SKIP LOCKED) l;
    IF v_seen < 4 * p_limit THEN RETURN; END IF;  -- that was all of it

    FOR v_lane IN
        SELECT t.task, t.rank, t.low FROM unnest(p_tasks, p_ranks, p_floors) AS t (task, rank, low)
        ORDER BY t.rank
    LOOP
        EXIT WHEN cardinality(ids) = p_limit;
        SELECT ids || array_agg(l.id), rows || array_agg(l.ctid),
               positions || array_agg(l.position), coalesce(bytes, 0) + coalesce(sum(l.bytes), 0)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = p_queue AND j.task = v_lane.task AND (-j.priority) = v_lane.rank
                AND j.position >= v_lane.low AND j.position <> ALL (coalesce(positions, '{}'))
              ORDER BY j.task, j.queue, (-j.priority), j.position
              LIMIT p_limit - coalesce(cardinality(ids), 0)
              FOR NO KEY UPDATE SKIP LOCKED) l;
    END LOOP;
END
$$;
