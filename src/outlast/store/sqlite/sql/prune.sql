-- Delete what ended long ago, oldest first, in one bounded batch.
--
-- Dead jobs stay until they are discarded, unless the caller limits how long they are kept. A gone worker stays while
-- any job still runs under its id, so that the evidence of a reclaim can name it. The row of a schedule goes a week
-- after it was deleted or last declared by code, unless a person has paused it; records of actions go after 90 days.

-- name: jobs
-- Jobs that ended long ago, jobs whose own retention (keep) is over, and dead jobs, unless :dead_before is NULL.
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_ended_at
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at IS NULL AND ended_at < :before
    ORDER BY prune_at, ended_at LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_ended_at
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at <= :now ORDER BY prune_at LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs WHERE state = 'dead' AND ended_at < :dead_before ORDER BY ended_at LIMIT :limit)
LIMIT :limit
-- name: unkept
SELECT j.id FROM json_each(:ids) AS e CROSS JOIN outlast_jobs AS j
WHERE j.id = e.value AND j.keep <= 0 AND j.state IN ('completed', 'cancelled')
-- name: attempts_of
DELETE FROM outlast_attempts WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: labels_of
DELETE FROM outlast_labels WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: logs_of
DELETE FROM outlast_logs WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: jobs_of
DELETE FROM outlast_jobs WHERE id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: workers
DELETE FROM outlast_workers WHERE id IN (
    SELECT w.id FROM outlast_workers AS w
    WHERE w.status IN ('stopped', 'lost') AND w.stopped_at < ?
      AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.worker_id = w.id)
    ORDER BY w.stopped_at LIMIT ?)
-- name: schedules
DELETE FROM outlast_schedules WHERE name IN (
    SELECT name FROM outlast_schedules
    WHERE declared_at IS NOT NULL AND declared_at < ? AND (paused = 0 OR origin = 'deleted') ORDER BY declared_at LIMIT ?)
-- name: actions
-- Actions under way stay.
DELETE FROM outlast_actions WHERE id IN (
    SELECT id FROM outlast_actions WHERE at < ? AND state <> 'running' ORDER BY id LIMIT ?)
