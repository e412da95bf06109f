-- Save a checkpoint, note progress. Both are fenced by (id, token, running): what a late worker
-- sends finds no row. Numbers rise within an attempt and start again at each claim, so a save
-- that is sent twice, or arrives behind a newer one, changes nothing.

-- name: save
UPDATE outlast_jobs
SET losses = :losses, checkpoint = :value, checkpoint_number = :number, checkpoint_at = :now
WHERE id = :job_id AND token = :token AND state = 'running' AND checkpoint_number < :number
-- name: is_current
SELECT 1 FROM outlast_jobs WHERE id = ? AND token = ? AND state = 'running'
-- name: report
UPDATE outlast_jobs SET progress = ? WHERE id = ? AND token = ? AND state = 'running'
