-- Release own running jobs that the worker does not hold: see migration_0004_orphans.sql.
SELECT job_id, token FROM outlast_reconcile_v1($1, $2, $3, $4, $5)
