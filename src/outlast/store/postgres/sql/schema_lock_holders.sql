-- Whose sessions hold the lock of schema_lock.sql. Other roles' sessions show when they connected only to
-- members of pg_read_all_stats. Reads only.
SELECT l.pid, pg_get_userbyid(a.usesysid)::text AS role, a.application_name AS application,
       extract(epoch FROM clock_timestamp() - a.backend_start)::float8 AS seconds
FROM pg_locks l JOIN pg_stat_get_activity(NULL::integer) a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND (l.classid::bigint << 32) | l.objid::bigint = x'6f75746c617374'::bigint
ORDER BY l.pid LIMIT 3
