-- Notify this store's listeners by the commit. Callers inline it. On a store that is polling only no session listens, and
-- it does nothing (migration_polling_only.sql).
CREATE FUNCTION outlast_tell_v1(p_payload text) RETURNS void
LANGUAGE sql
AS $$
    SELECT pg_notify(outlast_channel_v1(), $1)
$$;
