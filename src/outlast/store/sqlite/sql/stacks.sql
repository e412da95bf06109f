-- Where a running job is. "ask" puts on the row of the worker that runs the attempt what it is asked for, in place of what
-- the caller has seen there: of two that ask at once one has to read again, and neither takes the other's request away.
-- A worker that was reaped, or whose attempt has ended or was claimed again, is not asked. "keep" is fenced by (id, token,
-- running), under the write lock, as progress is: what a late worker sends finds no job.

-- name: ask
UPDATE outlast_workers SET stacks = :then
WHERE status IN ('active', 'draining') AND stacks = :seen AND id = (
    SELECT worker_id FROM outlast_jobs WHERE id = :job_id AND token = :token AND state = 'running')
-- name: keep
UPDATE outlast_jobs SET stack = :stack, stack_at = :now
WHERE id = :job_id AND token = :token AND state = 'running'
