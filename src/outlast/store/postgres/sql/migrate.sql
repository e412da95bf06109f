-- Make, check and migrate the schema.

-- name: patient
-- For the rest of this transaction, lift the limits on how long a statement takes and on how long the session waits for
-- the next one, and limit the wait for a lock to $1 milliseconds: all statements on the table wait behind it.
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true)

-- name: has_no_jobs
-- Return whether no job was ever stored. It keeps no lock, which the build of an index would wait for. Reads only.
SELECT pg_relation_size('outlast_jobs'::regclass) = 0

-- name: unlimited
-- Lift the limit on how long a statement takes, in a session that builds an index and then ends. It may wait long for
-- transactions that are older than the index; other sessions do not wait behind it.
SET statement_timeout = 0

-- name: lock
-- Try to become the one migrator. The lock ("outlast" as a number) is held to the end of the transaction, so that it
-- also works behind a pooler; a migrator that had to wait reads again which migrations are applied. Any role that may
-- connect can hold this lock. That stops migrations and nothing else: workers that find their schema do not ask for it,
-- and a migrator learns who holds it.
SELECT pg_try_advisory_xact_lock(x'6f75746c617374'::bigint)

-- name: try_unlogged
-- These four try the features that a store needs of its server. They are rolled back, so of several migrators one waits
-- for another at most.
CREATE UNLOGGED TABLE outlast_tried ()

-- name: try_locks
-- The lock of a session is released in the same statement, so that no pooler keeps it.
SELECT pg_try_advisory_xact_lock_shared(0), pg_try_advisory_lock_shared(0) AND pg_advisory_unlock_shared(0)

-- name: try_notify
-- Changes no row; the caller rolls it back, so no session hears it.
SELECT pg_notify('outlast_tried', '')

-- name: try_listen
-- Changes no row; the caller rolls it back, so the session does not listen afterwards.
LISTEN outlast_tried

-- name: lock_holders
-- List the sessions that hold the lock of `lock`. Only members of pg_read_all_stats see when sessions of other roles
-- connected. Reads only.
SELECT l.pid, pg_get_userbyid(a.usesysid)::text AS role, a.application_name AS application,
       extract(epoch FROM clock_timestamp() - a.backend_start)::float8 AS seconds
FROM pg_locks l JOIN pg_stat_get_activity(NULL::integer) a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND (l.classid::bigint << 32) | l.objid::bigint = x'6f75746c617374'::bigint
ORDER BY l.pid LIMIT 3

-- name: tables
-- Show to which tables of Outlast the search_path leads, without touching any. The catalog is read under this
-- statement's snapshot: to_regclass answers from a cache, which was seen to miss tables that another migrator had just
-- committed. lost: to which of the functions $1 it does not lead. one: shows how the driver of a caller's connection
-- reads numbers.
SELECT coalesce(bool_or(c.relname = 'outlast_schema'), false) AS schema_table,
       coalesce(bool_or(c.relname = 'outlast_jobs'), false) AS jobs_table, 1::bigint AS one,
       ARRAY(SELECT u.name FROM unnest($1::text[]) AS u (name)
             WHERE u.name <> ALL (ARRAY(
                 SELECT p.proname::text FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                 WHERE p.proname LIKE 'outlast\_%' AND n.nspname = ANY (current_schemas(false))))
             ORDER BY 1) AS lost
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname IN ('outlast_schema', 'outlast_jobs') AND n.nspname = ANY (current_schemas(false))

-- name: misled
-- List the functions that are not as they were made, each with the statement that corrects it. kind: `renamed`: it
-- searches for tables in a schema other than its own, since that was renamed; `open`: it runs as its owner, and PUBLIC
-- may call it, since a dump was restored without privileges; `owner`: it runs as an owner that may not use the tables,
-- since only theirs was changed. Reads only.
SELECT f.statement, p.proname::text AS name, f.kind
FROM pg_proc p JOIN pg_class c ON c.oid = to_regclass('outlast_schema') AND c.relnamespace = p.pronamespace
CROSS JOIN LATERAL (
    SELECT 'renamed', format('ALTER FUNCTION %s SET search_path FROM CURRENT', p.oid::regprocedure)
    WHERE EXISTS (SELECT FROM unnest(p.proconfig) AS u (setting) WHERE u.setting LIKE 'search\_path=%'
                  AND u.setting <> 'search_path=' || c.relnamespace::regnamespace::text || ', pg_temp')
    UNION ALL
    SELECT 'open', format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', p.oid::regprocedure)
    WHERE p.prosecdef AND has_function_privilege('public', p.oid, 'EXECUTE')
    UNION ALL
    SELECT 'owner', format('ALTER FUNCTION %s OWNER TO %s', p.oid::regprocedure, c.relowner::regrole)
    WHERE p.prosecdef AND NOT pg_has_role(p.proowner, c.relowner, 'USAGE')) AS f (kind, statement)
WHERE p.proname LIKE 'outlast\_%'
ORDER BY 2, 3

-- name: applied
-- List the applied migrations. Reads only.
SELECT number, name, checksum, compatible_from, applied_at, store_id::text
FROM outlast_schema ORDER BY number

-- name: note
-- Note an applied migration, in the transaction that applied it, under the advisory lock that admits one migrator.
-- The first step draws the store's id.
INSERT INTO outlast_schema (number, name, checksum, compatible_from, applied_at, store_id)
VALUES ($1::integer, $2, $3, $4, date_part('epoch', clock_timestamp()), CASE WHEN $1::integer = 1 THEN gen_random_uuid() END)
RETURNING applied_at

-- name: store_id
-- Read the id of this schema. It never changes.
SELECT store_id::text FROM outlast_schema WHERE number = 1
