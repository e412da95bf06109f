-- Return the first job of each open stream among these, so that the caller can wake listeners for it.
CREATE FUNCTION outlast_first_of_streams_v1(p_streams bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        SELECT j.id FROM unnest(p_streams) AS u (id)
        JOIN outlast_streams s ON s.id = ANY (ARRAY[u.id]) AND coalesce(s.blocked, 0) = 0 AND NOT coalesce(s.idle, false)
        CROSS JOIN LATERAL (
            SELECT j.id FROM outlast_jobs j
            WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
            ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) j);
END
$$;
