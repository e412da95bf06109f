-- Make every later token larger than this one: see migration_0006_operators.sql.
SELECT outlast_raise_tokens_v1($1)
