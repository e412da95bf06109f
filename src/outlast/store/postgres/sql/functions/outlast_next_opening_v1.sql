-- Return when the first limit opens by time (its rate, or the end of a hold) that blocks streams of these tasks; NULL:
-- none does. Looks at the next 100 permits that open, and at the first 100 streams of each. Reads without locks: a
-- worker that comes too early finds nothing. A permit that has opened already is locked by another session now.
CREATE FUNCTION outlast_next_opening_v1(p_tasks text[], p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_opens double precision;
BEGIN
    SELECT min(p.opens_at) INTO v_opens
    FROM (SELECT p.id, p.opens_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL ORDER BY p.opens_at LIMIT 100) p
    WHERE EXISTS (SELECT FROM (SELECT s.task FROM outlast_streams s WHERE s.blocked = p.id
                               ORDER BY s.blocked, s.rank, s.turn LIMIT 100) s WHERE s.task = ANY (p_tasks));
    RETURN CASE WHEN v_opens IS NOT NULL
                THEN greatest(to_timestamp(least(v_opens, 1e11)), p_now + interval '20 ms') END;
END
$$;
