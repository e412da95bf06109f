-- Delete one dead job with its attempts. The attempts go first, by the job's own state under
-- the write lock: a job that was requeued before keeps them.

-- name: attempts
DELETE FROM outlast_attempts
WHERE job_id = :id AND EXISTS (SELECT 1 FROM outlast_jobs WHERE id = :id AND state = 'dead')
-- name: labels
DELETE FROM outlast_labels
WHERE job_id = :id AND EXISTS (SELECT 1 FROM outlast_jobs WHERE id = :id AND state = 'dead')
-- name: logs
DELETE FROM outlast_logs
WHERE job_id = :id AND EXISTS (SELECT 1 FROM outlast_jobs WHERE id = :id AND state = 'dead')
-- name: job
DELETE FROM outlast_jobs WHERE id = :id AND state = 'dead'
