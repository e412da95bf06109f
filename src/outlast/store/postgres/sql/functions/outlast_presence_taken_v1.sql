-- Describe who holds the lock that a worker asks for: an earlier session of its role, or another role. Reads only; the
-- holder may have gone by the time this reads, and the worker tries again with each heartbeat.
CREATE FUNCTION outlast_presence_taken_v1(p_key bigint, p_role oid) RETURNS text
LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(
        (SELECT 'the role ' || l.role::regrole::text || ' has taken its lock (process '
                || l.backend::text || ', application ' || quote_ident(l.application)
                || '): end that session with pg_terminate_backend, and keep the role from this database'
         FROM outlast_locks_v1() l WHERE l.key = p_key AND l.role <> p_role LIMIT 1),
        'an earlier session still has the lock')
$$;
