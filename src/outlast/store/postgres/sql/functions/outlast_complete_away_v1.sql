-- Complete attempts whose jobs are kept for no time (keep = 0): leave their notices, then delete the jobs. Returns the
-- tokens of these attempts. Guarded like a completion (outlast_hand_in_v1). Locking and deleting are two statements, so
-- that the second sees all that was committed before the first had the lock. A completion that is sent again finds no
-- row and is refused: it cannot be told apart from that of a job that another worker has completed.
CREATE FUNCTION outlast_complete_away_v1(p_ids bigint[], p_tokens bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
BEGIN
    SELECT array_agg(l.id), array_agg(l.token) INTO v_ids, v_tokens
    FROM (SELECT j.id, j.token FROM unnest(p_ids, p_tokens) AS h (job_id, token)
          JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
          WHERE j.keep <= 0 AND NOT j.awaited
          FOR UPDATE OF j SKIP LOCKED) l;
    IF v_ids IS NOT NULL THEN
        PERFORM outlast_note_v1(v_ids, p_ran => true, p_had_ended => false);
        PERFORM outlast_forget_v1(v_ids);
    END IF;
    RETURN coalesce(v_tokens, '{}');
END
$$;
