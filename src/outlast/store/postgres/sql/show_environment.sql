-- What the server is and how it is set, as this session sees it; $1 is the backend that greeted
-- us: behind a pooler it is none of the server's, or another one's. Sessions of other roles show
-- their age only to members of pg_read_all_stats. open_schemas: those of the search_path before it was
-- narrowed, on which callers' own connections stay. Reads only.
SELECT current_setting('server_version_num')::integer AS version,
       extract(epoch FROM clock_timestamp())::float8 AS clock,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('autovacuum') AS autovacuum,
       current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
       coalesce((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c
                 WHERE c.oid = to_regclass('outlast_jobs')), false) AS owner,
       current_setting('server_encoding') AS encoding,
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
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       current_setting('max_connections')::integer
           - current_setting('superuser_reserved_connections')::integer AS connections_max,
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
       (SELECT extract(epoch FROM max(clock_timestamp() - p.prepared))::float8
        FROM pg_prepared_xacts p WHERE p.database = current_database()) AS oldest_prepared
