-- Take the locks of these limits (outlast_limit_lock_v1) alone, one after the other, to the end of the transaction, and
-- return the names of those that were free in time: all of them together wait for p_wait seconds at most. All callers
-- name limits in one order, so of two with the same limits the second waits, and no two wait for each other.
CREATE FUNCTION outlast_lock_limits_v1(p_names text[], p_wait double precision) RETURNS SETOF text
LANGUAGE plpgsql
SET lock_timeout = 0
AS $$
DECLARE
    v_until double precision := extract(epoch FROM clock_timestamp()) + p_wait; v_name text;
BEGIN
    FOREACH v_name IN ARRAY p_names LOOP
        BEGIN
            PERFORM set_config('lock_timeout', greatest(1, 1000 * (v_until - extract(epoch FROM clock_timestamp())))::integer::text, true);
            PERFORM pg_advisory_xact_lock(outlast_limit_lock_v1(v_name));
            RETURN NEXT v_name;
        EXCEPTION WHEN lock_not_available THEN
        END;
    END LOOP;
END
$$;
