-- Take the presence lock in this session, or prove that the session has it; then write that on the worker's row.
-- Returns NULL, or why the lock cannot be taken. outlast_presence_v1 argues why the order is right.
--
-- A session that already has the lock takes it once more, and loses all of it at its end: that is quicker than a search
-- through the locks of all workers. Behind a pooler the lock would belong to a session that outlives the worker or is
-- lent to others. p_port: the port of the client's own socket; for a Unix socket it is NULL, and p_backend, the process
-- named at the start of the connection, is compared with the process that answers.
CREATE FUNCTION outlast_hold_presence_v1(
    p_worker bigint, p_registration text, p_port integer, p_backend integer) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_key bigint := (SELECT outlast_presence_key_v1(s.store_id, p_worker, p_registration)
                     FROM outlast_schema s WHERE s.number = 1);
    v_role oid := (SELECT a.usesysid FROM pg_stat_get_activity(pg_backend_pid()) a);
    v_here text;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN 'the server is in recovery';
    END IF;
    PERFORM outlast_begin_incarnation_v1();
    v_here := outlast_incarnation_v1();
    IF inet_client_port() IS DISTINCT FROM p_port
       OR (p_port IS NULL AND pg_backend_pid() IS DISTINCT FROM p_backend) THEN
        RETURN 'a pooler or proxy stands between';
    END IF;
    IF NOT pg_try_advisory_lock(v_key) THEN
        RETURN coalesce(
            (SELECT 'the role ' || l.role::regrole::text || ' has taken its lock (process '
                    || l.backend::text || ', application ' || quote_ident(l.application)
                    || '): end that session with pg_terminate_backend, and keep the role from this database'
             FROM outlast_locks_v1() l WHERE l.key = v_key AND l.role <> v_role LIMIT 1),
            'an earlier session still has the lock');
    END IF;
    v_here := v_here || '/' || v_role::text;
    UPDATE outlast_workers SET presence = v_here, presence_off = NULL
    WHERE id = p_worker AND registration IS NOT DISTINCT FROM p_registration
      AND status IN ('active', 'draining')
      AND (presence IS DISTINCT FROM v_here OR presence_off IS NOT NULL);
    RETURN NULL;
END
$$;
