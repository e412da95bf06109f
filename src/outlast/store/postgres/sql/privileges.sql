-- What a role ($1; NULL: the one of this session) needs on these tables, views and sequences ($2, each
-- with a privilege at the same place in $3 and the columns that it is for in $5, '' for all of it), on the
-- schema that they are in and on the functions of Outlast: of those that run as their owner on $4 alone, and on
-- all others, but for a role for outlast_enqueue_v1: each as a GRANT, with whether the role has it already. No row for a role that does not exist. Reads the catalog only, so it races with nothing but another GRANT or REVOKE, whose effect the
-- next look shows. A name that is not found in the search_path counts as one that the role lacks.
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
         AND CASE WHEN p.prosecdef THEN p.proname = $4::text ELSE $4::text <> 'outlast_enqueue_v1' END
)
SELECT needed.privilege || ' ON ' || needed.target AS what,
       'GRANT ' || needed.privilege || ' ON ' || needed.target || ' TO ' || who.name AS statement,
       coalesce(needed.held, false) AS held
FROM needed CROSS JOIN who ORDER BY needed.place, needed.at
