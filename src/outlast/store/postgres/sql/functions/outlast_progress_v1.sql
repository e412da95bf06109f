-- Note the progress of running attempts. Guarded as outlast_checkpoint_v1 is: the row is locked by (id, token,
-- running) without waiting, and a late worker is refused. Progress has no number; the last write wins.
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
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), noted AS (
        UPDATE outlast_jobs j SET progress = l.value FROM locked l WHERE j.id = ANY (ARRAY[l.job_id]))
    SELECT coalesce(array_agg(l.job_id), '{}'), coalesce(array_agg(l.token), '{}')
    INTO v_ids, v_tokens FROM locked l;

    RETURN QUERY SELECT s.job_id, s.token, 'accepted'::text
                 FROM unnest(v_ids, v_tokens) AS s (job_id, token);
    RETURN QUERY SELECT * FROM outlast_unseen_v1(
        p_ids, p_tokens, v_ids, v_tokens, NULL, p_refusals_kept);
END
$$;
