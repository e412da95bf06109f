-- End the session that keeps the row of a gone worker: see migration_0004_orphans.sql.
SELECT outlast_free_v1($1, $2)
