-- Delete rows that ended long ago, oldest first, in one bounded batch; postgres/sql/prune.sql says which rows stay, and
-- why. A missing row of a stream or permit means that it has not been used: a later job makes it again.

-- name: jobs
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_ended_at
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep IS NULL AND ended_at < :before AND (NOT awaited OR NOT EXISTS (
        SELECT 1 FROM outlast_dependencies AS d JOIN outlast_jobs AS g ON g.id = d.job_id
        WHERE d.upstream_id = outlast_jobs.id AND g.ended_at IS NULL))
    ORDER BY ended_at + keep, ended_at LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_ended_at
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep <= :now AND (NOT awaited OR NOT EXISTS (
        SELECT 1 FROM outlast_dependencies AS d JOIN outlast_jobs AS g ON g.id = d.job_id
        WHERE d.upstream_id = outlast_jobs.id AND g.ended_at IS NULL)) ORDER BY ended_at + keep LIMIT :limit)
UNION ALL
SELECT id FROM (
    SELECT id FROM outlast_jobs WHERE state = 'dead' AND ended_at < :dead_before AND (NOT awaited OR NOT EXISTS (
        SELECT 1 FROM outlast_dependencies AS d JOIN outlast_jobs AS g ON g.id = d.job_id
        WHERE d.upstream_id = outlast_jobs.id AND g.ended_at IS NULL)) ORDER BY ended_at LIMIT :limit)
LIMIT :limit
-- name: unkept
SELECT j.id FROM json_each(:ids) AS e CROSS JOIN outlast_jobs AS j
WHERE j.id = e.value AND j.keep <= 0 AND NOT j.awaited AND j.state IN ('completed', 'cancelled')
-- name: attempts_of
DELETE FROM outlast_attempts WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: labels_of
DELETE FROM outlast_labels WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: logs_of
DELETE FROM outlast_logs WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: steps_of
DELETE FROM outlast_steps WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: waits_of
DELETE FROM outlast_waits WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: dependencies_of
DELETE FROM outlast_dependencies WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: jobs_of
DELETE FROM outlast_jobs WHERE id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: events
DELETE FROM outlast_events WHERE name IN (
    SELECT name FROM outlast_events WHERE at < ? AND NOT EXISTS (
        SELECT 1 FROM outlast_waits AS w JOIN outlast_jobs AS j ON j.id = w.job_id
        WHERE w.event = outlast_events.name AND j.ended_at IS NULL)
    ORDER BY at LIMIT ?)
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
DELETE FROM outlast_actions WHERE id IN (
    SELECT id FROM outlast_actions WHERE at < ? AND state <> 'running' ORDER BY id LIMIT ?)
-- name: windows
DELETE FROM outlast_windows WHERE (key, task) IN (
    SELECT key, task FROM outlast_windows WHERE until < ? ORDER BY until LIMIT ?)
-- name: unserved
UPDATE outlast_streams AS s SET idle = 1, blocked = NULL
WHERE id IN (SELECT id FROM (SELECT id FROM outlast_streams WHERE id >= :first ORDER BY id LIMIT :limit)
             UNION SELECT id FROM (SELECT id FROM outlast_streams WHERE id < :first ORDER BY id LIMIT :limit))
  AND idle = 0 AND blocked IS NOT -2 AND touched_at < :before
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
                  WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                    AND j.stream IS NOT NULL AND j.position IS NOT NULL)
-- name: streams
DELETE FROM outlast_streams WHERE id IN (
    SELECT id FROM outlast_streams INDEXED BY outlast_streams_idle
    WHERE idle = 1 AND touched_at < :before ORDER BY touched_at LIMIT :limit)
RETURNING CAST(needs AS TEXT)
-- name: permits
DELETE FROM outlast_permits
WHERE id IN (SELECT e.value FROM json_each(:permits) AS e
             UNION SELECT id FROM (SELECT id FROM outlast_permits WHERE id >= :first ORDER BY id LIMIT :limit)
             UNION SELECT id FROM (SELECT id FROM outlast_permits WHERE id < :first ORDER BY id LIMIT :limit))
  AND used = 0 AND own_running IS NULL AND freed = 0 AND opens_at IS NULL
  AND max(tat, touched_at, coalesce(held_until, 0)) < :before
  AND NOT EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
