-- Keep the last lines of running attempts, replacing the lines kept before. Returns the tokens for which this was done.
-- Guarded like outlast_checkpoint_v1, but without an answer: lines that find the row locked come with the next write.
--
-- Only the worker of an attempt writes its row of outlast_logs, one call after the other. A call whose connection broke
-- may still arrive after the next one, so the row counts the lines that its attempt has printed (`printed`), and fewer
-- lines never replace more. While this holds the lock on the job, no other session deletes that job with its logs, so
-- no row is left behind. For each job the rows of the newest p_kept attempts stay (tokens rise with attempts).
CREATE FUNCTION outlast_keep_logs_v1(
    p_ids bigint[], p_tokens bigint[], p_numbers integer[], p_printed integer[], p_lines text[], p_kept integer)
RETURNS SETOF bigint
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token, h.number, h.printed, h.lines
        FROM unnest(p_ids, p_tokens, p_numbers, p_printed, p_lines)
            AS h (job_id, token, number, printed, lines)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), kept AS (
        INSERT INTO outlast_logs AS l (token, job_id, number, printed, lines)
        SELECT o.token, o.job_id, o.number, o.printed, o.lines FROM locked o
        ON CONFLICT (token) DO UPDATE SET printed = excluded.printed, lines = excluded.lines
        WHERE l.printed <= excluded.printed
        RETURNING l.job_id, l.token)
    SELECT array_agg(k.job_id), array_agg(k.token) INTO v_ids, v_tokens FROM kept k;

    DELETE FROM outlast_logs l WHERE l.token IN (
        SELECT old.token FROM unnest(v_ids) AS g (job_id)
        CROSS JOIN LATERAL (
            SELECT k.token FROM outlast_logs k WHERE k.job_id = g.job_id
            ORDER BY k.job_id DESC, k.token DESC OFFSET p_kept) old);

    RETURN QUERY SELECT unnest(v_tokens);
END
$$;
