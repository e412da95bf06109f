-- Complete attempts whose ends come alone, in one statement: they need no exchange if they are outside streams, their
-- jobs are kept, and no other job awaits them. Returns their tokens. The caller hands in the other ends by an exchange
-- (outlast_hand_in_v1), which does what follows from them, or says why they are not accepted.
--
-- Guarded like a completion there: by its own token alone, so the worker's row is not locked; and it waits for no lock.
-- The lock re-checks the whole condition on the newest version of a row: a job that has become awaited meanwhile is
-- left to the exchange, and one that becomes so later is found completed. A row that changed after the snapshot is
-- locked in a version that the update does not see: its end is left to the exchange, too.
CREATE FUNCTION outlast_complete_v1(p_ids bigint[], p_tokens bigint[], p_results text[]) RETURNS bigint[]
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_tokens bigint[];
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT j.ctid AS row, h.result
        FROM unnest(p_ids, p_tokens, p_results) AS h (job_id, token, result)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        WHERE (j.keep IS NULL OR j.keep > 0) AND NOT j.awaited AND j.stream IS NULL
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), done AS (
        UPDATE outlast_jobs j
        SET state = 'completed', ended_at = date_part('epoch', clock_timestamp()), result = l.result,
            completed_by = j.worker_id, worker_id = NULL, hard_deadline = NULL
        FROM locked l WHERE j.ctid = l.row
        RETURNING j.token)
    SELECT array_agg(d.token) INTO v_tokens FROM done d;
    RETURN v_tokens;
END
$$;
