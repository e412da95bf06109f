-- When the next scheduled job of a queue falls due, or may. Runs inside outlast_due_v1; reads only, under the rule
-- of outlast_dear_v1, with a floor for each queue.
CREATE FUNCTION outlast_first_due_v1(p_queue text, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_index oid := 'outlast_jobs_due'::regclass;
    v_of text := '_' || md5(p_queue);
    v_soon timestamptz := p_now + interval '5 seconds';
    v_ahead timestamptz := outlast_ahead_v1(v_index, p_now, v_of);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_next timestamptz;
BEGIN
    SELECT coalesce(
        (SELECT j.run_at FROM outlast_jobs j
         WHERE j.queue = p_queue AND j.state = 'queued' AND j.position IS NULL AND j.solo = 0
           AND j.run_at > p_now AND j.run_at <= v_soon
         ORDER BY j.queue, j.run_at LIMIT 1),
        (SELECT j.run_at FROM outlast_jobs j
         WHERE j.queue = p_queue AND j.state = 'queued' AND j.position IS NULL AND j.solo = 0
           AND j.run_at >= v_ahead
         ORDER BY j.queue, j.run_at LIMIT 1))
    INTO v_next;
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_dear_v1(
            v_index, CASE WHEN v_ahead > v_soon THEN p_now ELSE '-infinity' END, v_next, p_now, v_read, NULL, v_of);
    END IF;
    RETURN CASE WHEN v_ahead > v_soon THEN least(v_next, v_soon) ELSE v_next END;
END
$$;
