-- List all advisory locks with a single bigint key that are held in this database now, and the roles that hold them.
-- Locks belong to no snapshot: outlast_presence_v1 argues in which order rows and locks are read.
CREATE FUNCTION outlast_locks_v1()
RETURNS TABLE (key bigint, backend integer, role oid, application text)
LANGUAGE sql VOLATILE
AS $$
    SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid, a.usesysid, a.application_name
    FROM pg_locks l JOIN pg_stat_get_activity(NULL::integer) a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;
