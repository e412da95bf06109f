-- Which tables of Outlast the search_path leads to, without touching any. The catalog is read
-- under this statement's snapshot: to_regclass answers from a cache, which was seen to miss the
-- tables that another migrator had just committed.
SELECT coalesce(bool_or(c.relname = 'outlast_schema'), false) AS schema_table,
       coalesce(bool_or(c.relname = 'outlast_jobs'), false) AS jobs_table
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname IN ('outlast_schema', 'outlast_jobs') AND n.nspname = ANY (current_schemas(false))
