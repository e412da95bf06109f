-- End these queued jobs, which have expired and whose rows the caller has locked. Returns how many. The callers argue
-- why this is right.
CREATE FUNCTION outlast_end_expired_v1(p_ids bigint[], p_now double precision) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_gone bigint[];
BEGIN
    IF p_ids IS NULL THEN RETURN 0; END IF;
    WITH expired AS (
        UPDATE outlast_jobs j
        SET state = 'cancelled', ended_at = p_now, position = NULL
        WHERE j.id = ANY (p_ids) RETURNING j.id, j.keep <= 0 AND NOT j.awaited AS gone)
    SELECT array_agg(e.id) FILTER (WHERE e.gone) INTO v_gone FROM expired e;
    PERFORM outlast_note_v1(p_ids, p_ran => false, p_had_ended => false);
    IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;
    RETURN cardinality(p_ids);
END
$$;
