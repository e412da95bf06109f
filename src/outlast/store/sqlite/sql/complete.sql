-- Complete an attempt inside the caller's own transaction (complete_in). Guarded by (id, token,
-- running): after a reclaim the token is another one, no row is found, and the caller rolls its
-- own writes back. A reclaim that comes while the transaction is open waits for the write lock
-- and then finds the job completed. The same columns as the exchange's "complete".

-- name: complete
UPDATE outlast_jobs
SET state = 'completed', completed_by = worker_id, worker_id = NULL, hard_deadline = NULL,
    ended_at = :now, prune_at = :now + keep, result = :result
WHERE id = :job_id AND token = :token AND state = 'running' AND (keep IS NULL OR keep > 0)
-- name: is_kept
-- Whether it was no such attempt. Otherwise it is current, and its job kept for no time: it is deleted instead.
SELECT NOT EXISTS (SELECT 1 FROM outlast_jobs
                   WHERE id = :job_id AND token = :token AND state = 'running' AND keep <= 0)
