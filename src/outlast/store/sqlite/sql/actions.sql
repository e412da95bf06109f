-- Acts of people on jobs, the records of these acts, and the steps of bulk actions. store/acts.py says what each act
-- means, runs these statements in one transaction, and argues why that is right: here the transaction holds the write
-- lock from its beginning. postgres/sql/actions.sql (`standing`) argues why each step is taken once.

-- name: forget_oldest
DELETE FROM outlast_actions
WHERE actor = :actor AND state <> 'running'
  AND id <= (SELECT id FROM outlast_actions WHERE actor = :actor ORDER BY id DESC LIMIT 1 OFFSET :kept)
-- name: standing
SELECT counts, state, before_id FROM outlast_actions WHERE id = :id
-- name: lock_free
SELECT value AS id FROM json_each(:ids)
-- name: lock
SELECT id, coalesce(token, 0) AS token, state, CAST(key AS TEXT) AS key, awaited, keep <= 0 AND NOT awaited AS unkept
FROM outlast_jobs WHERE id IN (SELECT e.value FROM json_each(:ids) AS e) ORDER BY id
-- name: cancel
UPDATE outlast_jobs
SET cancel_requested = 1, position = NULL, state = iif(state = 'running', state, 'cancelled'),
    ended_at = iif(state = 'running', NULL, :now)
WHERE id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: requeue
UPDATE outlast_jobs AS j
SET state = 'queued', position = p.value, run_at = :now, requeued_at = :now, failures = 0, losses = 0, solo = 0,
    incident = NULL, fingerprint = NULL, started_at = NULL, ended_at = NULL, expires_at = NULL,
    cancel_requested = 0, progress = NULL, checkpoint = iif(:from_scratch, NULL, j.checkpoint),
    checkpoint_at = iif(:from_scratch, NULL, j.checkpoint_at)
FROM json_each(:ids) AS e JOIN json_each(:positions) AS p ON p.key = e.key
WHERE j.id = e.value AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS k WHERE k.key = j.key AND k.ended_at IS NULL)
RETURNING id
-- name: skip
UPDATE outlast_jobs AS j
SET state = 'completed', token = t.value, attempt_count = attempt_count + 1, fingerprint = NULL,
    started_at = :now, ended_at = :now
FROM json_each(:ids) AS e JOIN json_each(:tokens) AS t ON t.key = e.key WHERE j.id = e.value
