-- Save a checkpoint. The row is locked by (id, token, running) without waiting, so that a task's own open transaction
-- on one row delays no other, and a late worker's write finds another token and is refused. A number that is not above
-- the one on the row changes nothing: an older save that arrives again cannot overwrite a newer one. The claim resets
-- the number to 0.
CREATE FUNCTION outlast_checkpoint_v1(
    p_ids bigint[], p_tokens bigint[], p_numbers integer[], p_values text[],
    p_losses integer[], p_refusals_kept integer)
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
        SELECT h.job_id, h.token, h.number, h.value, h.losses, j.checkpoint_number < h.number AS newer
        FROM unnest(p_ids, p_tokens, p_numbers, p_values, p_losses) AS h (job_id, token, number, value, losses)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), saved AS (
        UPDATE outlast_jobs j
        SET checkpoint = l.value, checkpoint_number = l.number, checkpoint_at = date_part('epoch', clock_timestamp()),
            losses = l.losses
        FROM locked l WHERE j.id = ANY (ARRAY[l.job_id]) AND l.newer)
    SELECT coalesce(array_agg(l.job_id), '{}'), coalesce(array_agg(l.token), '{}'),
           array_agg(CASE WHEN l.newer THEN 'accepted' ELSE 'already' END)
    INTO v_ids, v_tokens, v_answers FROM locked l;

    RETURN QUERY SELECT * FROM unnest(v_ids, v_tokens, v_answers);
    RETURN QUERY SELECT * FROM outlast_unseen_v1(
        p_ids, p_tokens, v_ids, v_tokens, 'checkpoint', p_refusals_kept);
END
$$;
