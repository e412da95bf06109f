-- Close the attempts that have ended, and answer the ends that were not accepted (called by outlast_exchange_v1).
--
-- An end is accepted or refused by its own token alone (outlast_end_v1). Plain completions, the hot path, come as
-- arrays and write no evidence row: their facts stay on the job. A completion locks the row and changes it in one
-- statement.
--
-- Locked rows are tried again after 2, 4 and 8 ms, for two reasons. A claim elsewhere with a slightly old snapshot
-- locks the newest version of a row before it sees that the job is taken, and keeps that lock until it commits. And a
-- row that changed after this statement's snapshot (by a checkpoint or progress) is locked in its newest version, which
-- the update in the same statement does not see yet; the next try sees it. If a row stays locked for longer, for
-- example by a task's own transaction, its end is answered busy.
--
-- If fewer jobs were completed than were handed in, those with keep = 0 that no other job awaits are deleted instead
-- (outlast_complete_away_v1). If other jobs wait for a completion, it is followed at once (outlast_follow_v1), in its
-- own commit; if another session holds one of these jobs, a notice is left. A completion in a stream leaves its
-- notices, and the claim of this exchange follows it (outlast_resolve_v1).
--
-- A plain completion in a stream that is not ordered, of a job that no other awaits, seldom needs a notice: the claim
-- that follows folds it (outlast_fold_v1). `ended` has its stream; an exchange that cannot fold it leaves its notice in
-- this commit (outlast_leave_ends_v1).
--
-- Returns the answers other than `accepted` (outlast_judge_v1), how many of them are busy, the number of ends, which
-- jobs can run now, and whether there may be work before a claim (is_long; not set if plain completions outside streams
-- all succeed at the first try). Runs inside outlast_exchange_v1, under its planner settings.
-- `= ANY (ARRAY[h.job_id])`: only the index on id can serve this condition, in any plan (decision 60).
CREATE FUNCTION outlast_hand_in_v1(
    p_done_ids bigint[], p_done_tokens bigint[], p_done_results text[], p_ends text, p_refusals_kept integer,
    OUT others json, OUT busy integer, OUT handed integer, OUT runnable bigint[], OUT ended bigint[], OUT is_long boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_ids bigint[] := p_done_ids; v_all bigint[] := p_done_tokens; v_outcomes text[]; v_tokens bigint[] := '{}';
    v_runnable bigint[]; v_clears bigint[]; v_gone bigint[]; v_noted bigint[];
    v_awaited bigint[] := '{}'; v_followed record;
BEGIN
    busy := 0;
    handed := 0;
    is_long := false;
    IF p_done_ids = '{}' AND p_ends IS NULL THEN RETURN; END IF;
    IF p_ends IS NOT NULL THEN
        is_long := true;
        SELECT v_ids || array_agg(h.job_id), v_all || array_agg(h.token), array_agg(h.outcome) INTO v_ids, v_all, v_outcomes
        FROM json_to_recordset(p_ends::json) AS h (job_id bigint, token bigint, outcome text);
    END IF;
    handed := cardinality(v_ids);
    FOR v_try IN 1..4 LOOP
        EXIT WHEN handed = cardinality(v_tokens);
        IF v_try > 1 THEN
            EXIT WHEN NOT EXISTS (
                SELECT FROM unnest(v_ids, v_all) AS h (job_id, token)
                JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running');
            PERFORM pg_sleep(0.001 * 2 ^ (v_try - 1));
        END IF;
        IF cardinality(p_done_ids) > 0 THEN
            WITH locked AS MATERIALIZED (
                SELECT j.ctid AS row, h.result
                FROM unnest(p_done_ids, p_done_tokens, p_done_results)
                     AS h (job_id, token, result)
                JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
                WHERE j.keep IS NULL OR j.keep > 0 OR j.awaited
                FOR NO KEY UPDATE OF j SKIP LOCKED
            ), done AS (
                UPDATE outlast_jobs j
                SET state = 'completed', ended_at = v_now, result = l.result,
                    completed_by = j.worker_id, worker_id = NULL, hard_deadline = NULL
                FROM locked l WHERE j.ctid = l.row
                RETURNING j.id, j.token, j.stream, coalesce(strpos(j.needs, ',true]') > 0, false) OR j.awaited AS noted, j.awaited)
            SELECT v_tokens || coalesce(array_agg(d.token), '{}'), v_noted || array_agg(d.id) FILTER (WHERE d.noted AND d.stream IS NOT NULL),
                   ended || array_agg(d.stream) FILTER (WHERE NOT d.noted AND d.stream IS NOT NULL),
                   v_awaited || array_agg(d.id) FILTER (WHERE d.awaited AND d.stream IS NULL)
            INTO v_tokens, v_noted, ended, v_awaited FROM done d;
            is_long := is_long OR v_noted IS NOT NULL OR ended IS NOT NULL OR v_awaited <> '{}';
            IF cardinality(v_tokens) = handed AND NOT is_long THEN RETURN; END IF;
            IF v_try > 1 OR cardinality(v_tokens) < cardinality(p_done_ids) THEN
                is_long := true;  -- it may leave notices
                v_tokens := v_tokens || outlast_complete_away_v1(p_done_ids, p_done_tokens);
            END IF;
        END IF;
        IF p_ends IS NOT NULL THEN
            SELECT v_tokens || coalesce(array_agg(e.token), '{}'),
                   v_runnable || array_agg(e.job_id) FILTER (WHERE e.runnable),
                   v_clears || array_agg(e.clears) FILTER (WHERE e.clears IS NOT NULL),
                   v_gone || array_agg(e.job_id) FILTER (WHERE e.gone),
                   v_noted || array_agg(e.job_id) FILTER (WHERE e.noted)
            INTO v_tokens, v_runnable, v_clears, v_gone, v_noted
            FROM outlast_end_v1(p_ends) e;
        END IF;
    END LOOP;
    IF v_noted IS NOT NULL THEN PERFORM outlast_note_v1(v_noted, p_ran => true, p_had_ended => false); END IF;
    IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;
    IF v_clears IS NOT NULL THEN
        v_runnable := v_runnable || outlast_clear_v1(v_clears);
    END IF;
    IF v_awaited <> '{}' THEN
        v_followed := outlast_follow_v1(v_awaited, 500);
        v_runnable := v_runnable || v_followed.ids;
        INSERT INTO outlast_upstream_notices (job_id) SELECT u FROM unnest(v_followed.stay) AS u;
    END IF;

    IF handed > cardinality(v_tokens) THEN
        SELECT json_agg(json_build_array(g.job_id, g.token, g.answer)), count(*) FILTER (WHERE g.answer = 'busy')
        INTO others, busy
        FROM (SELECT array_agg(h.job_id) AS ids, array_agg(h.token) AS tokens, array_agg(h.outcome) AS outcomes
              FROM unnest(v_ids, v_all, array_fill('completed'::text, ARRAY[cardinality(p_done_ids)]) || v_outcomes)
                   AS h (job_id, token, outcome)
              WHERE h.token <> ALL (v_tokens)) m
        CROSS JOIN LATERAL outlast_judge_v1(m.ids, m.tokens, m.outcomes, 'end', p_refusals_kept) g;
    END IF;
    runnable := v_runnable;
END
$$;
