-- 0002 ends: the one guard under which an attempt is closed, and the answers to late writes.
-- compatible_from: 0.1
--
-- Functions are versioned by name: a released one never changes, a later program brings _v2.
-- The planner settings on those that are called from outside (inner ones run under them) leave
-- nested loops over index scans as the only way. That is right for 1 row in and for 500, in an
-- empty table and among millions of finished jobs, whatever the statistics say.
--
-- Why an end is right against
--   * another end, a claim, a late worker: the row is locked by (id, token, running). A lock that
--     waits for nobody (SKIP LOCKED) and finds that the row has changed re-checks exactly these
--     three on the newest version. A token is never drawn twice, so a match is this attempt.
--   * a cancel request after the decision was made: the flag is taken from the locked row, and a
--     way back to the queue becomes `cancelled`.
--   * a save that was accepted and of which the worker never heard: losses are counted from the
--     locked row, and an end by a budget of losses that was forgiven meanwhile is none.
--   * evidence written twice: it comes from RETURNING of the update in the same statement.
--   * deadlock: nothing here waits for a job's row, so the order of locks does not matter.
-- Of a job that runs again and again, the first 10 and the last 20 attempts are kept (store.base says
-- the same) and, for ever, those that were charged: attempt n deletes the one of number n - 20, if
-- that was free of charge, and counts it. One probe by (job_id, number) each, never a scan. The older
-- rows were committed before this attempt was claimed, so this snapshot shows them, and none but the
-- holder of the job's row touches them. An end that is sent again after 20 more attempts is answered
-- refused, not already.
-- A delay that grows (doubles_to) doubles with each attempt in a row that has ended in this way.
-- Suspects (solo > 0) go back without a position: only a room for suspects finds them. `clears` is
-- returned of ends that were written, and of no others: a late end must not clear anybody.

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
-- pause like anybody. Returns those that can run now. One that somebody holds is being claimed,
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
-- still this attempt's (somebody held its lock a moment ago), `already` only for this very end,
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

-- The lanes in the gaps between those that are known and come in the order of the index: one probe for
-- each gap, and one more for each lane that is found. The rank of a lane is the negative of its
-- priority. Its floor is where the probe has found it: the walk over dead entries is not made again.
CREATE FUNCTION outlast_new_lanes_v1(p_queues text[], p_tasks text[], p_ranks smallint[])
RETURNS TABLE (queue text, task text, rank smallint, low bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_queue text;
    v_task text;
    v_rank smallint;
BEGIN
    FOR v_gap IN 0..cardinality(p_queues) LOOP  -- after the lane of this number; 0: before all
        v_queue := coalesce(p_queues[v_gap], '');
        v_task := coalesce(p_tasks[v_gap], '');
        v_rank := coalesce(p_ranks[v_gap], -32768);
        LOOP
            IF v_gap = cardinality(p_queues) THEN
                SELECT j.queue, j.task, -j.priority, j.position INTO queue, task, rank, low
                FROM outlast_jobs j
                WHERE j.position IS NOT NULL
                  AND (j.queue, j.task, (-j.priority)) > (v_queue, v_task, v_rank)
                ORDER BY j.queue, j.task, (-j.priority), j.position LIMIT 1;
            ELSE
                SELECT j.queue, j.task, -j.priority, j.position INTO queue, task, rank, low
                FROM outlast_jobs j
                WHERE j.position IS NOT NULL
                  AND (j.queue, j.task, (-j.priority)) > (v_queue, v_task, v_rank)
                  AND (j.queue, j.task, (-j.priority))
                      < (p_queues[v_gap + 1], p_tasks[v_gap + 1], p_ranks[v_gap + 1])
                ORDER BY j.queue, j.task, (-j.priority), j.position LIMIT 1;
            END IF;
            EXIT WHEN NOT FOUND;
            RETURN NEXT;
            v_queue := queue; v_task := task; v_rank := rank;
        END LOOP;
    END LOOP;
END
$$;

-- Lock jobs in these lanes that stand below their floors, in this range of positions; answers as
-- outlast_next_v1. What is there is looked for without locks, one probe for each lane: mostly nothing.
CREATE FUNCTION outlast_below_v1(
    p_queues text[], p_tasks text[], p_ranks smallint[], p_floors bigint[],
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
        FROM unnest(p_queues, p_tasks, p_ranks, p_floors) AS l (queue, task, rank, low)
        CROSS JOIN LATERAL (
            SELECT j.position FROM outlast_jobs j
            WHERE j.queue = l.queue AND j.task = l.task AND (-j.priority) = l.rank
              AND j.position >= p_from AND j.position < least(p_to, l.low)
            ORDER BY j.queue, j.task, (-j.priority), j.position LIMIT 1) f
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
              ORDER BY j.queue, j.task, (-j.priority), j.position
              LIMIT p_limit - coalesce(cardinality(ids), 0)
              FOR NO KEY UPDATE SKIP LOCKED) l;
    END LOOP;
END
$$;

-- Lock the next jobs of a queue in these lanes of it, from their floors on; returns their ids, where
-- their rows are and their positions, in the order of the line, and how many bytes of arguments and
-- checkpoints they have. (octet_length reads what is in the row: a value that is stored elsewhere has
-- its length beside its address, and is neither fetched nor decompressed.) One lane is read in its order and locked on the
-- way. The heads of several are merged without locks, four times as many as wanted, since others may
-- hold the first; then as many as wanted are locked. Where others hold so many of those that some are
-- still wanted, the lanes are read one after the other as if each were the only one, so that too few
-- come back only where nothing else can be locked: a worker that gets nothing rests for a while.
-- (coalesce leaves the primary key as the only way to an id, and the order that is asked for leaves
-- the line, whatever the statistics say.)
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
    IF cardinality(p_tasks) = 1 THEN
        SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.position), sum(l.bytes)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = p_queue AND j.task = p_tasks[1] AND (-j.priority) = p_ranks[1]
                AND j.position >= p_floors[1]
              ORDER BY j.queue, j.task, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) l;
        RETURN;
    END IF;
    WITH candidate AS MATERIALIZED (
        SELECT c.id, c.position
        FROM unnest(p_tasks, p_ranks, p_floors) AS t (task, rank, low)
        CROSS JOIN LATERAL (
            SELECT j.id, j.position FROM outlast_jobs j
            WHERE j.queue = p_queue AND j.task = t.task AND (-j.priority) = t.rank
              AND j.position >= t.low
            ORDER BY j.queue, j.task, (-j.priority), j.position LIMIT 4 * p_limit) c
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
              ORDER BY j.queue, j.task, (-j.priority), j.position
              LIMIT p_limit - coalesce(cardinality(ids), 0)
              FOR NO KEY UPDATE SKIP LOCKED) l;
    END LOOP;
END
$$;

-- How many of these jobs, from the first on, have so many bytes in all. The rows are locked.
CREATE FUNCTION outlast_within_v1(p_rows tid[], p_bytes bigint) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_count integer;
BEGIN
    SELECT count(*) INTO v_count
    FROM (SELECT sum(octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0))
                     OVER (ORDER BY r.n) AS total
          FROM unnest(p_rows) WITH ORDINALITY AS r (row, n)
          JOIN outlast_jobs j ON j.ctid = r.row) s
    WHERE s.total <= p_bytes;
    RETURN v_count;
END
$$;

-- Suspects (0003, under 6).

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
-- worker can run, too; answers as outlast_next_v1. With solo 2 that is one job: it has no company.
-- Candidates are looked for without locks; what has changed since is not locked.
CREATE FUNCTION outlast_next_suspects_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_limit integer, p_now timestamptz,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
DECLARE
    v_first bigint := outlast_first_suspect_v1(p_solo, p_tasks, p_queues, p_now);
    v_incident bigint;
    v_cohort bigint;
BEGIN
    IF v_first IS NULL THEN RETURN; END IF;
    ids := ARRAY[v_first];
    IF p_solo = 1 THEN
        SELECT j.incident, j.cohort INTO v_incident, v_cohort
        FROM outlast_jobs j WHERE j.id = v_first;
        ids := ids || ARRAY(
            SELECT j.id FROM outlast_jobs j
            WHERE j.incident = v_incident AND j.cohort = v_cohort AND j.id <> v_first
              AND j.state = 'queued' AND coalesce(j.solo, 0) = 1 AND j.run_at <= p_now
              AND j.task = ANY (p_tasks)
              AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues)));
    END IF;
    SELECT array_agg(l.id ORDER BY l.id), array_agg(l.ctid ORDER BY l.id), sum(l.bytes)
    INTO ids, rows, bytes
    FROM (SELECT m.id, m.ctid,
                 octet_length(m.args) + coalesce(octet_length(m.checkpoint), 0) AS bytes
          FROM (SELECT u.id FROM unnest(ids) AS u (id) LIMIT p_limit) w
          JOIN outlast_jobs m ON m.id = w.id AND m.state = 'queued' AND m.solo = p_solo
          FOR NO KEY UPDATE OF m SKIP LOCKED) l;
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
