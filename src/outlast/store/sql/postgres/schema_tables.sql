-- Which tables of Outlast the search_path leads to, without touching any.
SELECT to_regclass('outlast_schema') IS NOT NULL AS schema_table,
       to_regclass('outlast_jobs') IS NOT NULL AS jobs_table
