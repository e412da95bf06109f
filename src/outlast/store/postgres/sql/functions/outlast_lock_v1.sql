-- Take a lock by its key, alone, to the end of the transaction, and wait for it. These three are the locks of limits
-- and of the rows that claims make; callers inline them. Where the server refuses advisory locks they lock rows of
-- outlast_latches instead (migration_polling_only.sql).
CREATE FUNCTION outlast_lock_v1(p_key bigint) RETURNS void
LANGUAGE sql
AS $$
    SELECT pg_advisory_xact_lock($1)
$$;
