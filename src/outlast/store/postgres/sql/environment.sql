-- Facts of the server for the doctor, and the privileges of a role. Reads only.

-- name: environment
-- Show the server and its settings, as this session sees them. $1: the process id of the backend that greeted the
-- connection; behind a pooler another one answers. Only members of pg_read_all_stats see the age of other roles'
-- sessions, and their kind may be hidden: they count as clients. open_schemas: schemas of the search_path in which
-- PUBLIC may create, before the path was narrowed; callers' own connections keep that path. connections: the limit (of
-- the server, the role or the database) that leaves the fewest; a superuser is under the server's alone. feedback:
-- standbys whose queries have kept the dead rows of the last 100,000 transactions (hot_standby_feedback).
SELECT current_setting('server_version_num')::integer AS version,
       date_part('epoch', clock_timestamp()) AS clock,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('autovacuum') AS autovacuum,
       current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
       NOT pg_has_role(session_user, 'USAGE') AS borrowed,
       coalesce((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c
                 WHERE c.oid = to_regclass('outlast_jobs')), false) AS owner,
       current_setting('server_encoding') AS encoding,
       current_setting('track_counts') AS track_counts,
       ARRAY(SELECT c.relname::text FROM pg_class c
             WHERE c.oid IN (to_regclass('outlast_jobs'), to_regclass('outlast_attempts'),
                             to_regclass('outlast_workers'), to_regclass('outlast_refusals'))
               AND c.relpersistence <> 'p' ORDER BY 1) AS unlogged,
       current_setting('track_activities') AS track_activities,
       ARRAY(SELECT DISTINCT a.usename::text FROM pg_stat_activity a
             WHERE a.datname = current_database() AND a.application_name = 'outlast presence'
             ORDER BY 1) AS worker_roles,
       ARRAY(SELECT r.rolname::text FROM pg_roles r
             WHERE r.rolcanlogin AND NOT r.rolsuper
               AND has_database_privilege(r.oid, current_database(), 'CONNECT')
               AND NOT has_table_privilege(r.oid, to_regclass('outlast_jobs')::oid, 'SELECT, INSERT')
             ORDER BY 1 LIMIT 20) AS strangers,
       pg_backend_pid() <> $1::integer AS pooled,
       pg_is_in_recovery() AS standby,
       (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'default_transaction_read_only') = 'on' AS read_only,
       current_setting('synchronous_standby_names') AS standby_names,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.query_start))::float8
        FROM pg_stat_get_activity(NULL) a WHERE a.wait_event = 'SyncRep') AS standby_wait,
       ARRAY(SELECT s.slot_name::text FROM pg_replication_slots s
             WHERE NOT s.active AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL) ORDER BY 1) AS idle_slots,
       places.used AS connections, places.most AS connections_max, places.limited_by,
       (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()) AS prepared,
       current_setting('max_prepared_transactions')::integer > 0 AS two_phase,
       pg_notification_queue_usage() AS notify_queue,
       ARRAY(SELECT c.relname::text FROM pg_class c
             WHERE c.oid IN (to_regclass('outlast_jobs'), to_regclass('outlast_attempts'),
                             to_regclass('outlast_workers'), to_regclass('outlast_refusals'))
               AND c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
             ORDER BY 1) AS not_vacuumed,
       ARRAY(SELECT quote_ident(n.nspname)
             FROM pg_settings s
             CROSS JOIN regexp_matches(s.reset_val, '"((?:[^"]|"")+)"|([^",\s]+)', 'g') m
             JOIN pg_namespace n ON n.nspname = CASE WHEN m[1] = '$user' THEN current_user::text
                                                     ELSE coalesce(replace(m[1], '""', '"'), m[2]) END
             WHERE s.name = 'search_path' AND has_schema_privilege('public', n.oid, 'CREATE')
             ORDER BY 1) AS open_schemas,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::float8
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.backend_type = 'client backend') AS oldest_transaction,
       (SELECT format('process %s of %s, %s', a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'unnamed'))
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.backend_type = 'client backend' AND a.xact_start IS NOT NULL
        ORDER BY a.xact_start LIMIT 1) AS oldest_holder,
       ARRAY(SELECT r.application_name::text FROM pg_stat_replication r WHERE age(r.backend_xmin) > 100000
             UNION
             SELECT s.slot_name::text FROM pg_replication_slots s WHERE s.active AND age(s.xmin) > 100000 ORDER BY 1) AS feedback,
       (SELECT extract(epoch FROM max(clock_timestamp() - p.prepared))::float8
        FROM pg_prepared_xacts p WHERE p.database = current_database()) AS oldest_prepared
FROM (
    SELECT l.limited_by, l.most, count(a.pid) AS used
    FROM (
        SELECT 'max_connections' AS limited_by, NULL::oid AS role, NULL::oid AS database,
               current_setting('max_connections')::integer
                   - current_setting('superuser_reserved_connections')::integer
                   - coalesce(current_setting('reserved_connections', true)::integer, 0) AS most
        UNION ALL
        SELECT 'ALTER ROLE ' || quote_ident(r.rolname) || ' CONNECTION LIMIT', r.oid, NULL, r.rolconnlimit
        FROM pg_roles r WHERE r.rolname = session_user AND r.rolconnlimit >= 0 AND NOT r.rolsuper
        UNION ALL
        SELECT 'ALTER DATABASE ' || quote_ident(d.datname) || ' CONNECTION LIMIT', NULL, d.oid, d.datconnlimit
        FROM pg_database d JOIN pg_roles r ON r.rolname = session_user
        WHERE d.datname = current_database() AND d.datconnlimit >= 0 AND NOT r.rolsuper
    ) AS l
    LEFT JOIN pg_stat_activity a
        ON a.datid IS NOT NULL AND a.usesysid IS NOT NULL
       AND coalesce(a.backend_type, 'client backend') = 'client backend'
       AND (l.role IS NULL OR a.usesysid = l.role) AND (l.database IS NULL OR a.datid = l.database)
    GROUP BY l.limited_by, l.most ORDER BY l.most - count(a.pid) LIMIT 1
) AS places

-- name: standing
-- Show whether the server refuses writes, the time (in seconds since 1970) of the last change that a standby has, and
-- for how many seconds a commit has waited for a synchronous standby, as far as this role sees other roles' sessions. A
-- session of ours that only reads is read-only by itself; NULL sets it, for this statement's transaction alone, to what the
-- server, the database or the role says.
SELECT pg_is_in_recovery() AS standby,
       set_config('default_transaction_read_only', NULL, true) = 'on' AS read_only,
       date_part('epoch', pg_last_xact_replay_timestamp()) AS last,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.query_start))::float8
        FROM pg_stat_get_activity(NULL) a WHERE a.wait_event = 'SyncRep') AS standby_wait,
       date_part('epoch', clock_timestamp()) AS now

-- name: last_beat
-- Read the newest heartbeat that this server has of any worker. Writes that commit meanwhile are missing.
SELECT max(w.heartbeat_at) FROM outlast_workers w

-- name: collation
-- Show with which version of the server's library this database was made, if the library now sorts in another way.
-- PostgreSQL 15 and later.
SELECT d.datcollversion || ', now ' || pg_database_collation_actual_version(d.oid)
FROM pg_database d
WHERE d.datname = current_database() AND d.datcollversion <> pg_database_collation_actual_version(d.oid)

-- name: lanes
-- Count the lanes (task, queue, priority) that have jobs, or had some within a day or so. Reads only.
SELECT count(*) FROM (SELECT DISTINCT l.task, l.queue, l.priority FROM outlast_lanes l) l

-- name: behind
SELECT outlast_raise_numbers_v1(false)

-- name: privileges
-- List the privileges that a role ($1; NULL: the role of this session) needs, each as a GRANT, with whether the role
-- has it already: privileges on tables, views and sequences ($2, each with a privilege at the same index in $3 and its
-- columns in $5, '' for the whole relation), on their schema, and on the functions of Outlast. Of functions that run as
-- their owner, only those of $4 are needed. All other functions are needed too, unless $4 names outlast_enqueue_v1:
-- then the role only enqueues by SQL. A role that does not exist has no row. A name that is not found in the
-- search_path counts as a missing privilege.
WITH who AS (
    SELECT r.oid, quote_ident(r.rolname) AS name
    FROM pg_catalog.pg_roles r WHERE r.rolname = coalesce($1::name, current_user)
), home AS (
    SELECT c.relnamespace AS oid FROM pg_catalog.pg_class c WHERE c.oid = to_regclass('outlast_schema')
), needed AS (
    SELECT 1 AS place, n.at,
           n.privilege || CASE n.columns WHEN '' THEN '' ELSE ' (' || replace(n.columns, ',', ', ') || ')' END AS privilege,
           CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END
               || coalesce(c.oid::regclass::text, n.name) AS target,
           CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(who.oid, c.oid, n.privilege)
                WHEN n.columns = '' THEN has_table_privilege(who.oid, c.oid, n.privilege)
                ELSE (SELECT bool_and(has_column_privilege(who.oid, c.oid, u.name, n.privilege))
                      FROM unnest(string_to_array(n.columns, ',')) AS u (name)) END AS held
    FROM who CROSS JOIN unnest($2::text[], $3::text[], $5::text[]) WITH ORDINALITY AS n (name, privilege, columns, at)
    LEFT JOIN pg_catalog.pg_class c ON c.oid = to_regclass(n.name)
    UNION ALL
    SELECT 0, 0, 'USAGE', 'SCHEMA ' || home.oid::regnamespace::text,
           has_schema_privilege(who.oid, home.oid, 'USAGE')
    FROM who CROSS JOIN home
    UNION ALL
    SELECT 2, p.oid::bigint, 'EXECUTE', 'FUNCTION ' || p.oid::regprocedure::text,
           has_function_privilege(who.oid, p.oid, 'EXECUTE')
    FROM who CROSS JOIN home
    JOIN pg_catalog.pg_proc p ON p.pronamespace = home.oid AND p.proname LIKE 'outlast\_%'
         AND CASE WHEN p.prosecdef THEN p.proname = ANY ($4::text[]) ELSE 'outlast_enqueue_v1' <> ALL ($4::text[]) END
)
SELECT needed.privilege || ' ON ' || needed.target AS what,
       'GRANT ' || needed.privilege || ' ON ' || needed.target || ' TO ' || who.name AS statement,
       coalesce(needed.held, false) AS held
FROM needed CROSS JOIN who ORDER BY needed.place, needed.at
