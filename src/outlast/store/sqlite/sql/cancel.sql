-- Cancel: a queued job ends at once, a running one is asked. Under the write lock a job is
-- either still queued (then it can no longer be claimed) or has been claimed (then its worker
-- learns it with the next exchange or beat). A request on the row wins over every way back to
-- the queue, also a reclaim's; a completion beats it.

-- name: state
SELECT state FROM outlast_jobs WHERE id = ?
-- name: end_queued
UPDATE outlast_jobs
SET state = 'cancelled', ended_at = :now, prune_at = :now + keep, position = NULL, cancel_requested = 1
WHERE id = :id AND state = 'queued'
-- name: ask_running
UPDATE outlast_jobs SET cancel_requested = 1 WHERE id = ? AND state = 'running'
