-- Return the seconds from one time to a later one, at most about a hundred years. An infinite time, which no interval
-- can hold, makes no reader fail. Depends on its arguments alone.
CREATE FUNCTION outlast_seconds_v1(p_later timestamptz, p_earlier timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN isfinite(p_later) AND isfinite(p_earlier)
                THEN greatest(-3.2e9, least(3.2e9, extract(epoch FROM p_later - p_earlier)::float8))
                WHEN p_later = p_earlier THEN 0
                WHEN p_later > p_earlier THEN 3.2e9
                WHEN p_later < p_earlier THEN -3.2e9 END
$$;
