-- Revive dead and cancelled jobs: see migration_0006_operators.sql.
SELECT job_id, answer FROM outlast_requeue_v1($1, $2, $3)
