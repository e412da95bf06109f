-- Store progress, guarded like outlast_checkpoint_v1. Progress has no number; the last write wins. p_stills: the
-- seconds in which neither the attempt nor its worker ran, as a total, so that a report that comes twice moves the
-- deadline once, and a late report does not move it back. Only the claim sets started_at, under a new token.
CREATE FUNCTION outlast_progress_v1(
    p_ids bigint[], p_tokens bigint[], p_values text[], p_stills double precision[], p_refusals_kept integer)
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
        SELECT h.job_id, h.token, h.value, h.still
        FROM unnest(p_ids, p_tokens, p_values, p_stills) AS h (job_id, token, value, still)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), noted AS (
        UPDATE outlast_jobs j
        SET progress = l.value,
            hard_deadline = CASE WHEN l.still > 0 AND j.timeout IS NOT NULL THEN greatest(
                j.hard_deadline, j.started_at + greatest(0, least(j.timeout + l.still, 1e9)))
                ELSE j.hard_deadline END
        FROM locked l WHERE j.id = ANY (ARRAY[l.job_id]))
    SELECT coalesce(array_agg(l.job_id), '{}'), coalesce(array_agg(l.token), '{}')
    INTO v_ids, v_tokens FROM locked l;

    RETURN QUERY SELECT s.job_id, s.token, 'accepted'::text
                 FROM unnest(v_ids, v_tokens) AS s (job_id, token);
    RETURN QUERY SELECT * FROM outlast_unseen_v1(
        p_ids, p_tokens, v_ids, v_tokens, NULL, p_refusals_kept);
END
$$;
