-- Take a lock as outlast_lock_v1 does, or return false at once.
CREATE FUNCTION outlast_try_lock_v1(p_key bigint) RETURNS boolean
LANGUAGE sql
AS $$
    SELECT pg_try_advisory_xact_lock($1)
$$;
