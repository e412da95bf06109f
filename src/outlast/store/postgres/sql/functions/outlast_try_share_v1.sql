-- Take a lock of outlast_lock_v1 beside others that share it, or return false at once.
CREATE FUNCTION outlast_try_share_v1(p_key bigint) RETURNS boolean
LANGUAGE sql
AS $$
    SELECT pg_try_advisory_xact_lock_shared($1)
$$;
