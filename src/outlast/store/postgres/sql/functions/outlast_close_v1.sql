-- Close attempts as decided, under the guard of outlast_end_v1, with all consequences of their ends. Returns the
-- attempts that were closed, with the new states of their jobs.
CREATE FUNCTION outlast_close_v1(p_ends text, p_notify boolean)
RETURNS TABLE (job_id bigint, token bigint, state text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
    v_runnable bigint[];
    v_clears bigint[];
    v_gone bigint[];
    v_noted bigint[];
    v_states text[];
BEGIN
    SELECT array_agg(e.job_id), array_agg(e.token), array_agg(e.job_id) FILTER (WHERE e.runnable),
           array_agg(e.clears) FILTER (WHERE e.clears IS NOT NULL),
           array_agg(e.job_id) FILTER (WHERE e.gone), array_agg(e.job_id) FILTER (WHERE e.noted), array_agg(e.state)
    INTO v_ids, v_tokens, v_runnable, v_clears, v_gone, v_noted, v_states
    FROM outlast_end_v1(p_ends) e;
    IF v_noted IS NOT NULL THEN PERFORM outlast_note_v1(v_noted, p_ran => true, p_had_ended => false); END IF;
    IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;
    IF v_clears IS NOT NULL THEN
        v_runnable := v_runnable || outlast_clear_v1(v_clears);
    END IF;
    IF v_runnable IS NOT NULL THEN
        PERFORM outlast_line_up_v1(v_runnable);
        IF p_notify THEN PERFORM outlast_notify_v1(v_runnable); END IF;
    END IF;
    RETURN QUERY
    SELECT c.job_id, c.token, c.state FROM unnest(v_ids, v_tokens, v_states) AS c (job_id, token, state);
END
$$;
