-- Keep the values of steps of running attempts, guarded like outlast_checkpoint_v1. While this holds the lock, no other
-- session ends, reclaims or deletes the job, so a deletion leaves no value behind.
--
-- Each (job, step) has one value, by the primary key: only the current attempt writes, has searched for the name
-- before, and uses each name once. So a value that already exists is this very one, whose answer was lost, or one that
-- the attempt has committed itself (keep_in of steps.sql). A new value is progress: it forgives losses. Each step of a
-- job is new once, so a job that is lost in the same step each time is not forgiven.
CREATE FUNCTION outlast_keep_steps_v1(
    p_ids bigint[], p_tokens bigint[], p_names text[], p_values text[], p_refusals_kept integer)
RETURNS TABLE (job_id bigint, token bigint, name text, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_seen record;
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token, h.name, h.value, j.losses
        FROM unnest(p_ids, p_tokens, p_names, p_values) AS h (job_id, token, name, value)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), kept AS (
        INSERT INTO outlast_steps AS s (job_id, name, token, value, at)
        SELECT l.job_id, l.name, l.token, l.value, date_part('epoch', clock_timestamp()) FROM locked l
        ON CONFLICT DO NOTHING
        RETURNING s.job_id, s.name
    ), forgiven AS (
        UPDATE outlast_jobs j SET losses = 0
        FROM locked l
        WHERE j.id = ANY (ARRAY[l.job_id]) AND l.losses > 0
          AND (l.job_id, l.name) IN (SELECT k.job_id, k.name FROM kept k))
    SELECT coalesce(array_agg(l.job_id), '{}') AS ids, coalesce(array_agg(l.token), '{}') AS tokens,
           array_agg(l.name) AS names,
           array_agg(CASE WHEN (l.job_id, l.name) IN (SELECT k.job_id, k.name FROM kept k) THEN 'accepted'
                          ELSE 'already' END) AS answers
    INTO v_seen FROM locked l;

    RETURN QUERY SELECT * FROM unnest(v_seen.ids, v_seen.tokens, v_seen.names, v_seen.answers);
    RETURN QUERY
    SELECT u.job_id, u.token, NULL::text, u.answer FROM outlast_unseen_v1(
        p_ids, p_tokens, v_seen.ids, v_seen.tokens, 'step', p_refusals_kept) u;
END
$$;
