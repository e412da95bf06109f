-- Revive a dead or cancelled job with fresh budgets, under no suspicion and without expiry. The token stays on the row and the next
-- claim draws a higher one: a late worker of an old attempt is still refused. The unique index
-- on keys would refuse a second unfinished holder; the look says so in a word instead.

-- name: look
SELECT state, CAST(key AS TEXT) FROM outlast_jobs WHERE id = ?
-- name: key_holder
SELECT id FROM outlast_jobs WHERE key = ? AND ended_at IS NULL
-- name: requeue
UPDATE outlast_jobs
SET state = 'queued', position = :position, run_at = :now, requeued_at = :now, ended_at = NULL,
    failures = 0, losses = 0, solo = 0, incident = NULL, cohort = NULL,
    cancel_requested = 0, progress = NULL, expires_at = NULL, prune_at = NULL,
    started_at = NULL, fingerprint = NULL,
    checkpoint = CASE WHEN :from_scratch THEN NULL ELSE checkpoint END,
    checkpoint_at = CASE WHEN :from_scratch THEN NULL ELSE checkpoint_at END
WHERE id = :id AND state IN ('dead', 'cancelled')
