-- Lock exactly these attempts and return the facts to decide on: see migration_0004_orphans.sql.
SELECT * FROM outlast_facts_v1($1, $2)
