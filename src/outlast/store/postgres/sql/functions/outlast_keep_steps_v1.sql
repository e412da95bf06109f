-- Keep the values of steps of running attempts.
--
-- Guarded as outlast_checkpoint_v1 is: the row of the job is locked by (id, token, running) without waiting, so a late
-- worker's step finds another token and is refused, and a reap or an end that holds the row is not held up. While this
-- holds the lock, no other session ends, reclaims or deletes the job, so no value is left behind by a deletion.
--
-- One value for each (job, step), by the primary key: only the current attempt writes, it has looked for the name
-- before it called the function, and it uses each name once. So a value that is there already is this very one, whose
-- answer was lost, or one that the attempt has committed itself (keep_step in steps.sql). A new value is progress: it
-- forgives losses. It is new once for each job, so a job that is lost in the same step each time is not forgiven.
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
    v_all_ids bigint[];
    v_all_tokens bigint[];
    v_ids bigint[];
    v_tokens bigint[];
    v_new_ids bigint[];
    v_new_names text[];
BEGIN
    SELECT array_agg(a.job_id), array_agg(a.token) INTO v_all_ids, v_all_tokens
    FROM (SELECT DISTINCT h.job_id, h.token FROM unnest(p_ids, p_tokens) AS h (job_id, token)) a;

    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token
        FROM unnest(v_all_ids, v_all_tokens) AS h (job_id, token)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED)
    SELECT coalesce(array_agg(l.job_id), '{}'), coalesce(array_agg(l.token), '{}')
    INTO v_ids, v_tokens FROM locked l;

    WITH kept AS (
        INSERT INTO outlast_steps AS s (job_id, name, token, value, at)
        SELECT h.job_id, h.name, h.token, h.value, clock_timestamp()
        FROM unnest(p_ids, p_tokens, p_names, p_values) AS h (job_id, token, name, value)
        WHERE EXISTS (SELECT FROM unnest(v_ids, v_tokens) AS l (job_id, token)
                      WHERE l.job_id = h.job_id AND l.token = h.token)
        ON CONFLICT DO NOTHING
        RETURNING s.job_id, s.name)
    SELECT coalesce(array_agg(k.job_id), '{}'), coalesce(array_agg(k.name), '{}')
    INTO v_new_ids, v_new_names FROM kept k;

    UPDATE outlast_jobs j SET losses = 0 WHERE j.id = ANY (v_new_ids) AND j.losses > 0;

    RETURN QUERY
    SELECT h.job_id, h.token, h.name,
           CASE WHEN EXISTS (SELECT FROM unnest(v_new_ids, v_new_names) AS k (job_id, name)
                             WHERE k.job_id = h.job_id AND k.name = h.name) THEN 'accepted' ELSE 'already' END
    FROM unnest(p_ids, p_tokens, p_names) AS h (job_id, token, name)
    WHERE EXISTS (SELECT FROM unnest(v_ids, v_tokens) AS l (job_id, token)
                  WHERE l.job_id = h.job_id AND l.token = h.token);
    RETURN QUERY
    SELECT u.job_id, u.token, NULL::text, u.answer FROM outlast_unseen_v1(
        v_all_ids, v_all_tokens, v_ids, v_tokens, 'step', p_refusals_kept) u;
END
$$;
