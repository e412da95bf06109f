-- Return when the first scheduled job of any queue fell or falls due, up to a minute ahead; NULL if none does. Reads
-- only, under the rule of outlast_keep_floor_v1 and the planner settings of the caller.
CREATE FUNCTION outlast_first_due_v1(p_now double precision) RETURNS double precision
LANGUAGE plpgsql
AS $$
DECLARE
    v_index oid := 'outlast_jobs_run_at'::regclass; v_from double precision := outlast_read_from_v1(v_index, p_now);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_first double precision;
BEGIN
    SELECT j.run_at INTO v_first FROM outlast_jobs j
    WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
      AND j.run_at >= v_from AND j.run_at <= p_now + 60
    ORDER BY j.run_at LIMIT 1;
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_keep_floor_v1(v_index, v_from, v_first, p_now, v_read);
    END IF;
    RETURN v_first;
END
$$;
