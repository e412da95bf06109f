-- Whether all permits of a stream that have rows have room for one more start now (true for a job without a stream). Reads without
-- locks: it says which suspects are worth a look. The start of one looks again under the permits' locks, where a hold
-- that a clock which was ahead has written is set right (outlast_take_suspects_v1); until then it does not count.
CREATE FUNCTION outlast_has_room_v1(p_stream bigint, p_now double precision) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN p_stream IS NULL OR EXISTS (
        SELECT FROM outlast_streams s WHERE s.id = p_stream)
        AND NOT EXISTS (
            SELECT FROM outlast_streams s
            CROSS JOIN LATERAL unnest(s.permits, s.costs) AS c (permit, cost)
            LEFT JOIN outlast_permits p ON p.id = c.permit
            LEFT JOIN outlast_limits l ON l.name = p.name
            WHERE s.id = p_stream AND p.id IS NOT NULL
              AND (l.name IS NULL OR greatest(CASE WHEN p.touched_at <= p_now + 1 THEN p.held_until END, l.held_until, 0) > p_now
                   OR outlast_room_v1(least(1000000000, coalesce(p.own_running, l.running) - p.used), l.spacing, l.burst,
                                      greatest(0, p.tat - greatest(p_now, p.touched_at)), c.cost) <= 0));
END
$$;
