-- Return the instant from which to read an index of instants to find its first live entry: -infinity, or the floor that
-- this session keeps (outlast_keep_floor_v1 argues why that is right).
CREATE FUNCTION outlast_read_from_v1(p_index oid, p_now double precision) RETURNS double precision
LANGUAGE plpgsql
AS $$
DECLARE
    v_kept double precision[] := nullif(current_setting('outlast.floor_' || p_index, true), '');
BEGIN
    IF v_kept IS NULL THEN RETURN '-infinity'; END IF;
    IF p_now >= v_kept[1] AND p_now BETWEEN v_kept[2] - 60 AND v_kept[2] THEN RETURN v_kept[1]; END IF;
    RETURN '-infinity';
END
$$;
