-- 0005 saves and suspects: checkpoints and progress of running attempts; which suspects run next (at the end).
-- compatible_from: 0.1
--
-- Guarded like an end: locked by (id, token, running), never waiting, so that a task's own open
-- transaction on one row delays no other. A late worker's write finds another token and is refused.
-- A number that is not above the one on the row changes nothing: a repeated older save cannot
-- overwrite a newer one. The claim sets the number back to 0, since it rises within an attempt.

-- Judge those handed in that are not among the seen (see outlast_judge_v1 in 0002).
CREATE FUNCTION outlast_unseen_v1(
    p_ids bigint[], p_tokens bigint[], p_seen_ids bigint[], p_seen_tokens bigint[],
    p_verb text, p_refusals_kept integer)
RETURNS TABLE (job_id bigint, token bigint, answer text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(p_ids) = cardinality(p_seen_ids) THEN RETURN; END IF;
    RETURN QUERY
    SELECT g.job_id, g.token, g.answer
    FROM (SELECT array_agg(h.job_id) AS ids, array_agg(h.token) AS tokens
          FROM unnest(p_ids, p_tokens) AS h (job_id, token)
          WHERE NOT EXISTS (SELECT FROM unnest(p_seen_ids, p_seen_tokens) AS s (job_id, token)
                            WHERE s.job_id = h.job_id AND s.token = h.token)) m
    CROSS JOIN LATERAL outlast_judge_v1(
        m.ids, m.tokens, array_fill(NULL::text, ARRAY[cardinality(m.ids)]), p_verb,
        p_refusals_kept) g;
END
$$;

CREATE FUNCTION outlast_checkpoint_v1(
    p_ids bigint[], p_tokens bigint[], p_numbers integer[], p_values text[],
    p_refusals_kept integer)
RETURNS TABLE (job_id bigint, token bigint, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
    v_answers text[];
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token, h.number, h.value, j.checkpoint_number < h.number AS newer
        FROM unnest(p_ids, p_tokens, p_numbers, p_values) AS h (job_id, token, number, value)
        JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), saved AS (
        UPDATE outlast_jobs j
        SET checkpoint = l.value, checkpoint_number = l.number, checkpoint_at = clock_timestamp(),
            losses = CASE WHEN j.checkpoint IS DISTINCT FROM l.value THEN 0 ELSE j.losses END
        FROM locked l WHERE j.id = l.job_id AND l.newer)
    SELECT coalesce(array_agg(l.job_id), '{}'), coalesce(array_agg(l.token), '{}'),
           array_agg(CASE WHEN l.newer THEN 'accepted' ELSE 'already' END)
    INTO v_ids, v_tokens, v_answers FROM locked l;

    RETURN QUERY SELECT * FROM unnest(v_ids, v_tokens, v_answers);
    RETURN QUERY SELECT * FROM outlast_unseen_v1(
        p_ids, p_tokens, v_ids, v_tokens, 'checkpoint', p_refusals_kept);
END
$$;

CREATE FUNCTION outlast_progress_v1(
    p_ids bigint[], p_tokens bigint[], p_values text[], p_refusals_kept integer)
RETURNS TABLE (job_id bigint, token bigint, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token, h.value
        FROM unnest(p_ids, p_tokens, p_values) AS h (job_id, token, value)
        JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), noted AS (
        UPDATE outlast_jobs j SET progress = l.value FROM locked l WHERE j.id = l.job_id)
    SELECT coalesce(array_agg(l.job_id), '{}'), coalesce(array_agg(l.token), '{}')
    INTO v_ids, v_tokens FROM locked l;

    RETURN QUERY SELECT s.job_id, s.token, 'accepted'::text
                 FROM unnest(v_ids, v_tokens) AS s (job_id, token);
    RETURN QUERY SELECT * FROM outlast_unseen_v1(
        p_ids, p_tokens, v_ids, v_tokens, NULL, p_refusals_kept);
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

-- Lock what a claim request for suspects takes: the first that is due, and those of its cohort that this
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
