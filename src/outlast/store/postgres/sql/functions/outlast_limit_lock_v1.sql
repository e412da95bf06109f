-- Return the key of a limit's advisory lock. An exchange takes it shared, without waiting, before it reads the limit's
-- row, and keeps it to its commit; a change of the limit takes it alone, and waits. So once a change has the
-- lock, every stream that an exchange has marked blocked by the limit as it was is committed: the change sees it, and
-- leaves a notice for its permit. Exchanges wait for no one; while a change waits, they pass over the limit's streams
-- (a lock that another session waits for is not given), so the change is not starved by them; locks of rows have no such
-- queue (seen). Who may connect can take it as well: lock_holders of limits.sql names who does. Depends on its argument alone;
-- limits of two schemas in one database, or two keys that are equal by chance, only wait for each other.
CREATE FUNCTION outlast_limit_lock_v1(p_name text) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
    SELECT hashtextextended('outlast:limit:' || p_name, 0::bigint)
$$;
