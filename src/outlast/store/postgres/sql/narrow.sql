-- Find tables, functions and operators in one schema from now on: the first of the search_path with our
-- tables, otherwise the first, where they would be made. The other schemas of the path may be open to
-- all roles, and of several functions or operators of one name the one whose arguments fit best runs,
-- regardless of its schema. pg_catalog stays first; pg_temp, which is first for tables unless it is named, comes last.
-- Tables of a stranger (strangers.sql says who is one) come after all that are ours, regardless
-- of their place in the path; where there are no others, strangers.sql refuses them.
--
-- $1: whether the path becomes the session's. Behind a pooler, which lends sessions to others, each
-- transaction sets for itself what is answered here. No row: no schema of the path exists.
--
-- This runs under the path as it was, so all that it names is named with its schema.
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
SELECT home.path,
       CASE WHEN $1::pg_catalog.bool
            THEN pg_catalog.set_config('search_path'::pg_catalog.text, home.path, false) END
FROM home
