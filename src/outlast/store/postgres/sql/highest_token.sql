-- The highest token on a stored job. Reads the whole table, so it runs without a statement_timeout; it
-- locks no row.
SELECT coalesce(max(token), 0) FROM outlast_jobs
