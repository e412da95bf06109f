-- Complete dead and blocked jobs without a result, by an attempt that begins and ends here: it has a token and a number,
-- and no worker. What waits for them goes on by the notice of their end (outlast_follow_v1). Returns those that are skipped.
--
-- Right against
--   * a requeue, a claim, an end of what a blocked job waits for, another skip: rows are locked in the order of their ids,
--     and changed by a second statement. The lock re-checks the state, so a job that is queued by now is left alone; and
--     outlast_follow_v1 opens only what is still blocked under its own lock of the row.
--   * a late worker: the token that it holds is no longer the last one.
CREATE FUNCTION outlast_skip_v1(p_ids bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now timestamptz;
    v_ids bigint[]; v_gone bigint[];
BEGIN
    v_ids := ARRAY(SELECT j.id FROM outlast_jobs j WHERE j.id = ANY (p_ids) AND j.state IN ('dead', 'blocked')
                   ORDER BY j.id FOR NO KEY UPDATE);
    v_now := clock_timestamp();
    UPDATE outlast_dependencies d SET state = 2 WHERE d.job_id = ANY (v_ids) AND d.state <> 2;
    WITH skipped AS (
        UPDATE outlast_jobs j
        SET state = 'completed', token = nextval('outlast_token_seq'), attempt_count = j.attempt_count + 1,
            started_at = v_now, ended_at = v_now, fingerprint = NULL,
            prune_at = CASE WHEN j.keep IS NOT NULL THEN v_now + greatest(0, least(j.keep, 1e9)) * interval '1 second' END
        WHERE j.id = ANY (v_ids)
        RETURNING j.id, j.keep <= 0 AND NOT j.awaited AS gone)
    SELECT array_agg(s.id) INTO v_gone FROM skipped s WHERE s.gone;
    PERFORM outlast_note_v1(v_ids, p_ran => false, p_had_ended => false);
    IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;
    RETURN QUERY SELECT unnest(v_ids);
END
$$;
