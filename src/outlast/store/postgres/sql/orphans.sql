-- Lock orphans and return the facts to decide on: see migration_0004_orphans.sql.
SELECT * FROM outlast_orphans_v1($1)
