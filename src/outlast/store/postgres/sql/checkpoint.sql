-- Save checkpoints: see migration_0005_saves_and_suspects.sql.
SELECT job_id, token, answer FROM outlast_checkpoint_v1($1, $2, $3, $4, $5)
