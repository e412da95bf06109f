-- Make every later token larger than this one, and than any of another incarnation of the database: see
-- migration_0006_operators.sql.
SELECT outlast_begin_incarnation_v1(), outlast_raise_tokens_v1($1)
