-- Return the first time at which a permit opens that lacks only time and blocks streams of these tasks; NULL: none
-- does. A permit that opens at this moment is opened by the next exchange.
CREATE FUNCTION outlast_next_opening_v1(p_tasks text[], p_now double precision) RETURNS double precision
LANGUAGE plpgsql
AS $$
DECLARE
    v_opens double precision;
BEGIN
    SELECT min(p.opens_at) INTO v_opens
    FROM (SELECT p.id, p.opens_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL ORDER BY p.opens_at LIMIT 100) p
    WHERE EXISTS (SELECT FROM (SELECT s.task FROM outlast_streams s WHERE s.blocked = p.id
                               ORDER BY s.blocked, s.rank, s.turn LIMIT 100) s WHERE s.task = ANY (p_tasks));
    RETURN CASE WHEN v_opens IS NOT NULL THEN greatest(v_opens, p_now + 0.02) END;
END
$$;
