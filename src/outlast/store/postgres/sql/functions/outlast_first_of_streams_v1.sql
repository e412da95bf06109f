-- Return the first job of each open stream among these, so that the caller can wake listeners for it.
CREATE FUNCTION outlast_first_of_streams_v1(p_streams bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        SELECT j.id FROM unnest(p_streams) AS u (id)
        CROSS JOIN LATERAL (SELECT * FROM outlast_streams o WHERE o.id = u.id ORDER BY o.id DESC, o.turn DESC LIMIT 1) s
        CROSS JOIN LATERAL (
            SELECT j.id FROM outlast_jobs j
            WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
              AND coalesce(j.aged, j.position) >= s.floor
            ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) j
        WHERE s.blocked IS NULL AND NOT s.idle);
END
$$;
