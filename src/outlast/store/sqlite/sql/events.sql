-- Events, and the jobs that wait for them. Under the write lock: the end of an attempt that waits, and a sender, each
-- leave a notice in their commit, and the next exchange makes jobs due whose event was sent. Commits come one after the
-- other, so the session that reads the later notice sees both. A job that is no longer queued under the waiting
-- attempt's token is left alone.

-- name: send
INSERT INTO outlast_events (name, value, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
-- name: note
INSERT INTO outlast_upstream_notices (job_id, event) VALUES (0, ?)
-- name: find
SELECT CAST(value AS TEXT) FROM outlast_events WHERE name = ?
-- name: wait
-- Runs after the end, which has queued the job.
INSERT INTO outlast_waits (job_id, token, event)
SELECT id, token, :event FROM outlast_jobs WHERE id = :job_id AND token = :token AND state = 'queued'
ON CONFLICT (job_id) DO UPDATE SET token = excluded.token, event = excluded.event, woken = 0
-- name: waiting
SELECT w.job_id FROM json_each(:names) AS n
CROSS JOIN outlast_events AS e ON e.name = n.value
CROSS JOIN outlast_waits AS w INDEXED BY outlast_waits_event ON w.event = e.name AND w.woken = 0
LIMIT :most
-- name: wake
UPDATE outlast_jobs SET run_at = :now, position = :position + e.key
FROM json_each(:ids) AS e CROSS JOIN outlast_waits AS w ON w.job_id = e.value
WHERE outlast_jobs.id = w.job_id AND outlast_jobs.token = w.token AND state = 'queued' AND position IS NULL
-- name: woken
UPDATE outlast_waits SET woken = 1 WHERE job_id IN (SELECT e.value FROM json_each(:ids) AS e)
