-- Cancel queued jobs, ask running ones: see migration_0006_operators.sql.
SELECT job_id, answer FROM outlast_cancel_v1($1, $2, $3)
