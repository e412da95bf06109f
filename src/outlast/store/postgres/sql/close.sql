-- Close attempts as decided, under the guard of migration_0002_ends.sql.
SELECT job_id, token FROM outlast_close_v1($1, $2)
