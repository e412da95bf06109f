-- Close attempts as decided, under the guard of outlast_end_v1, put the suspects that they clear into the
-- line (outlast_clear_v1) and wake listeners; returns those that were closed.
CREATE FUNCTION outlast_close_v1(p_ends text, p_notify boolean)
RETURNS TABLE (job_id bigint, token bigint)
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
BEGIN
    SELECT array_agg(e.job_id), array_agg(e.token), array_agg(e.job_id) FILTER (WHERE e.runnable),
           array_agg(e.clears) FILTER (WHERE e.clears IS NOT NULL)
    INTO v_ids, v_tokens, v_runnable, v_clears
    FROM outlast_end_v1(p_ends) e;
    IF v_clears IS NOT NULL THEN
        v_runnable := v_runnable || outlast_clear_v1(v_clears);
    END IF;
    IF p_notify AND v_runnable IS NOT NULL THEN
        PERFORM outlast_notify_v1(v_runnable);
    END IF;
    RETURN QUERY SELECT c.job_id, c.token FROM unnest(v_ids, v_tokens) AS c (job_id, token);
END
$$;
