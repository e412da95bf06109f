-- First statements of a session or a transaction.

-- name: use_one_schema
-- Find tables, functions and operators in one schema from now on: the first of the search_path with our tables, or, if
-- there are none, the first of the path, where they would be made. The other schemas of the path may be open to all
-- roles, and of several functions or operators of one name PostgreSQL runs the one whose arguments fit best, whichever
-- schema it is in. pg_catalog stays first; pg_temp, which is first for tables unless it is named, comes last. A
-- stranger's tables (`strangers` defines a stranger) come after all of our own, regardless of their place in the path;
-- if there are no others, `strangers` refuses them.
--
-- A server from PostgreSQL 17 on may limit how long a transaction takes; older ones refuse the name of that setting, so
-- it is not among the settings with which a session begins.
--
-- $1: whether both are set for the session. Behind a pooler, which lends sessions to others, each transaction sets them
-- for itself, as `local` says; NULL: no schema of the path exists. server: the time of its start, which identifies a
-- server; NULL: a standby.
--
-- $2: whether the server is to refuse writes of the session. That is set here, once the session is there, since the
-- driver tells by this very setting which server takes writes (target_session_attrs). It is never set to "off", which
-- would overrule a server that protects itself.
--
-- This runs under the old path, so it names each object with its schema.
WITH home AS MATERIALIZED (
    SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text)
               OPERATOR(pg_catalog.||) ', pg_temp'::pg_catalog.text AS path
    FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s (name, place)
    JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) s.name
    JOIN pg_catalog.pg_database d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
    LEFT JOIN pg_catalog.pg_class c
        ON c.relnamespace OPERATOR(pg_catalog.=) n.oid
       AND c.relname OPERATOR(pg_catalog.=) 'outlast_schema'::pg_catalog.name
    WHERE n.oid OPERATOR(pg_catalog.<>) pg_catalog.pg_my_temp_schema()
      AND n.nspname OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.name
    ORDER BY CASE
        WHEN c.oid IS NULL THEN 3
        WHEN pg_catalog.pg_has_role(c.relowner, current_user, 'MEMBER'::pg_catalog.text)
          OR pg_catalog.pg_has_role(c.relowner, d.datdba, 'MEMBER'::pg_catalog.text) THEN 1
        WHEN pg_catalog.has_database_privilege(
            'public'::pg_catalog.name, d.oid, 'CREATE'::pg_catalog.text) THEN 2
        WHEN pg_catalog.pg_has_role(c.relowner, n.nspowner, 'MEMBER'::pg_catalog.text)
          OR EXISTS (
            SELECT FROM pg_catalog.aclexplode(n.nspacl) a
            WHERE a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'::pg_catalog.text
              AND a.grantee OPERATOR(pg_catalog.<>) 0::pg_catalog.oid
              AND pg_catalog.pg_has_role(c.relowner, a.grantee, 'MEMBER'::pg_catalog.text)) THEN 1
        ELSE 2 END, s.place
    LIMIT 1
)
SELECT CASE WHEN home.path IS NOT NULL
            THEN pg_catalog.concat('SET LOCAL search_path = ', home.path,
                                   CASE WHEN limits.are THEN '; SET LOCAL transaction_timeout = 0' END) END AS local,
       CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_postmaster_start_time() END AS server,
       CASE WHEN $1::pg_catalog.bool AND home.path IS NOT NULL
            THEN pg_catalog.set_config('search_path'::pg_catalog.text, home.path, false) END,
       CASE WHEN $1 AND limits.are
            THEN pg_catalog.set_config('transaction_timeout'::pg_catalog.text, '0'::pg_catalog.text, false) END,
       CASE WHEN $2::pg_catalog.bool
            THEN pg_catalog.set_config('default_transaction_read_only'::pg_catalog.text, 'on'::pg_catalog.text, false) END
FROM (SELECT pg_catalog.current_setting('server_version_num'::pg_catalog.text)::pg_catalog.int4
             OPERATOR(pg_catalog.>=) 170000 AS are) limits
LEFT JOIN home ON true

-- name: sessions
-- Find which of these processes ($1) the server has, and for how long this role's transactions have been open in this
-- database, with the event for which each one waits; without any, one row of NULLs. server: as `use_one_schema` returns
-- it; in one statement with the others, since behind a pooler the next one may run on another server. A session whose
-- activity is not tracked, or not shown to this role, may have been in a transaction for any time. Reads only.
SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_postmaster_start_time() END AS server, a.pid, a.wait_event,
       CASE WHEN a.xact_start IS NOT NULL THEN extract(epoch FROM clock_timestamp() - a.xact_start)::float8
            WHEN coalesce(a.state, 'disabled'::text) = 'disabled'::text AND a.pid IS NOT NULL
            THEN 'infinity'::float8 ELSE 0 END AS seconds
FROM (SELECT) here
LEFT JOIN pg_stat_activity a
       ON a.pid = ANY ($1::text::integer[])
       OR (a.usename = session_user AND a.datname = current_database() AND a.pid <> pg_backend_pid()
           AND (a.xact_start IS NOT NULL OR coalesce(a.state, 'disabled'::text) = 'disabled'::text))

-- name: unmet
-- Find settings whose value in this session differs from the wanted one ($1: names, $2: values). If the text differs,
-- the wanted one is set, for this statement's transaction alone, to see how it would read ('64MB' for '65536kB'). This
-- runs under the old path, so it names each operator with its schema.
WITH asked AS MATERIALIZED (
    SELECT a.name, a.value, pg_catalog.current_setting(a.name, true) AS has
    FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))
        AS a (name, value)
)
SELECT name, value, has FROM asked
WHERE CASE WHEN COALESCE(has OPERATOR(pg_catalog.=) value, false) THEN false
           ELSE COALESCE(pg_catalog.set_config(name, value, true) OPERATOR(pg_catalog.<>) has, true) END

-- name: strangers
-- Find objects in our schema (the first of the path: see `use_one_schema`) that belong to a stranger and that
-- statements of ours would use: objects that replace one of ours or of the server's, or that run when our tables are
-- written. Their owner could make this role run anything. Returns the first of them, how many there are, and the
-- statements that trust its owner or remove it. A function or an operator counts if the server has one of the same
-- name, since the one whose arguments fit best is chosen; a trigger counts by the owner of its function.
--
-- These are not strangers: a superuser; the owner of the database; a role that can become this one; and a role that
-- owns the schema or may create in it by a grant to itself or to a role that it is in. A right of PUBLIC does not
-- count; and if all roles may make schemas, a grant on a schema does not count either.
--
-- Reads only the catalog, so it races with roles that create something later; while PUBLIC may do that, `outlast
-- doctor` reports it. Strangers may have put operators into the path. So this names functions with their schema, and
-- gives both sides of each operator types for which pg_catalog, which comes first, has one.
WITH home AS (
    SELECT n.oid, n.nspname, n.nspowner, n.nspacl, d.datdba, d.datname,
           pg_catalog.has_database_privilege('public'::name, d.oid, 'CREATE'::text) AS makes_schemas
    FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
    WHERE n.nspname = pg_catalog.current_schema()
), found AS (
    SELECT 1 AS rank, 'pg_class'::regclass::oid AS catalog, c.oid, c.relowner AS owner
    FROM home JOIN pg_catalog.pg_class c ON c.relnamespace = home.oid
    WHERE c.relname LIKE 'outlast\_%'::text AND c.relkind NOT IN ('i'::"char", 'I'::"char", 't'::"char")
    UNION ALL
    SELECT 2, 'pg_trigger'::regclass::oid, t.oid, p.proowner
    FROM home JOIN pg_catalog.pg_class c ON c.relnamespace = home.oid
    JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    WHERE c.relname LIKE 'outlast\_%'::text
    UNION ALL
    SELECT 3, 'pg_proc'::regclass::oid, p.oid, p.proowner
    FROM home JOIN pg_catalog.pg_proc p ON p.pronamespace = home.oid
    WHERE p.proname LIKE 'outlast\_%'::text
       OR EXISTS (SELECT FROM pg_catalog.pg_proc q
                  WHERE q.proname = p.proname AND q.pronamespace = 'pg_catalog'::regnamespace::oid)
    UNION ALL
    SELECT 4, 'pg_operator'::regclass::oid, o.oid, o.oprowner
    FROM home JOIN pg_catalog.pg_operator o ON o.oprnamespace = home.oid
    WHERE EXISTS (SELECT FROM pg_catalog.pg_operator q
                  WHERE q.oprname = o.oprname AND q.oprnamespace = 'pg_catalog'::regnamespace::oid)
    UNION ALL
    SELECT 5, 'pg_type'::regclass::oid, t.oid, t.typowner
    FROM home JOIN pg_catalog.pg_type t ON t.typnamespace = home.oid AND t.typrelid = 0::oid
    WHERE t.typname LIKE 'outlast\_%'::text
), strange AS (
    SELECT found.*, home.datname, home.nspname, home.makes_schemas
    FROM home CROSS JOIN found
    WHERE NOT pg_catalog.pg_has_role(found.owner, current_user, 'MEMBER'::text)
      AND NOT pg_catalog.pg_has_role(found.owner, home.datdba, 'MEMBER'::text)
      AND (home.makes_schemas
           OR NOT pg_catalog.pg_has_role(found.owner, home.nspowner, 'MEMBER'::text)
          AND NOT EXISTS (
              SELECT FROM pg_catalog.aclexplode(home.nspacl) a
              WHERE a.privilege_type = 'CREATE'::text AND a.grantee <> 0::oid
                AND pg_catalog.pg_has_role(found.owner, a.grantee, 'MEMBER'::text)))
)
SELECT pg_catalog.concat(it.type, ' ', it.identity) AS what,
       pg_catalog.pg_get_userbyid(s.owner) AS owner,
       pg_catalog.quote_ident(s.nspname::text) AS schema,
       pg_catalog.concat(
           CASE WHEN s.makes_schemas THEN
               pg_catalog.concat('REVOKE CREATE ON DATABASE ',
                                 pg_catalog.quote_ident(s.datname::text), ' FROM PUBLIC; ') END,
           'GRANT CREATE ON SCHEMA ', pg_catalog.quote_ident(s.nspname::text), ' TO ',
           pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(s.owner)::text)) AS trusts,
       pg_catalog.concat(
           'DROP ', pg_catalog.replace(pg_catalog.upper(it.type), 'COMPOSITE ', ''), ' ', it.identity
       ) AS removes,
       pg_catalog.count(*) OVER () AS number
FROM strange s CROSS JOIN LATERAL pg_catalog.pg_identify_object(s.catalog, s.oid, 0) it
ORDER BY s.rank, it.identity LIMIT 1

-- name: by_index
-- For the rest of this transaction, make counts that stop at a bound use the index whose order they ask for, even if
-- the statistics are out of date. (A plan was seen that sorted the whole line to count the first of it: seconds
-- instead of a tenth of one.)
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off
