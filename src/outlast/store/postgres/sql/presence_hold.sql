-- Take or prove a worker's presence: see migration_0004_orphans.sql.
SELECT outlast_hold_presence_v1($1, $2, $3, $4)
