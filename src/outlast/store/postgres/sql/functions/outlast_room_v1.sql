-- room_of in model/limits.py, which defines the arithmetic. p_free: by how many the count of running attempts is below
-- the cap. p_ahead: by how many seconds the next start is ahead of now. This is one expression, so that callers inline
-- it.
CREATE FUNCTION outlast_room_v1(
    p_free integer, p_spacing double precision, p_burst double precision, p_ahead double precision,
    p_cost double precision) RETURNS integer
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_free <= 0 THEN 0
                WHEN p_spacing IS NULL OR p_cost <= 0 THEN p_free
                WHEN p_ahead + p_cost * p_spacing - p_burst * p_spacing > 1e-9 THEN 0
                ELSE least(p_free, 1 + floor((p_burst * p_spacing - p_ahead - p_cost * p_spacing)
                                             / (p_cost * p_spacing) + 1e-9)) END::integer
$$;
