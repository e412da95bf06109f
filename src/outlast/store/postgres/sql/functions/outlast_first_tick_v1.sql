-- Return when the first schedule was or is due, up to a minute ahead; NULL if none is. Reads only, under the rule of
-- outlast_keep_floor_v1 and the planner settings of the caller.
CREATE FUNCTION outlast_first_tick_v1(p_now double precision) RETURNS double precision
LANGUAGE plpgsql
AS $$
DECLARE
    v_index oid := 'outlast_schedules_next'::regclass; v_from double precision := outlast_read_from_v1(v_index, p_now);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_first double precision;
BEGIN
    SELECT s.next_tick INTO v_first FROM outlast_schedules s
    WHERE NOT s.paused AND s.declared AND s.next_tick IS NOT NULL
      AND s.next_tick >= v_from AND s.next_tick <= p_now + 60
    ORDER BY s.next_tick LIMIT 1;
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_keep_floor_v1(v_index, v_from, v_first, p_now, v_read);
    END IF;
    RETURN v_first;
END
$$;
