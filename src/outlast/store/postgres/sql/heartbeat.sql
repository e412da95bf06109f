-- Renew a lease and look for requests (cancel, drain): see migration_0004_orphans.sql.
SELECT job_id, token, drain FROM outlast_heartbeat_v1($1, $2)
