-- From which instant on to read what is more than 5 s ahead in an index of instants: from there, or from the second
-- floor that this session keeps (outlast_dear_v1, which says why that is right, and what p_of is). Where it is a floor,
-- the caller says that something may be due in 5 s: what was committed below the floor since then has not been seen.
CREATE FUNCTION outlast_ahead_v1(p_index oid, p_now timestamptz, p_of text) RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_kept double precision[] := nullif(current_setting('outlast.head_' || p_index || p_of, true), '');
    v_now double precision;
BEGIN
    IF v_kept IS NOT NULL THEN
        v_now := extract(epoch FROM p_now);
        IF v_now >= v_kept[1] AND v_now BETWEEN v_kept[2] - 60 AND v_kept[2] THEN
            RETURN to_timestamp(greatest(v_kept[3], v_now + 5));
        END IF;
    END IF;
    RETURN p_now + interval '5 seconds';
END
$$;
