-- A beat. With a lock file the counter in that file is the beat, and "look" needs no write lock,
-- so no long transaction can starve it; "show" then only keeps the row fresh for
-- people. Without one, "renew" is the beat. A row that was reaped is never revived: by the
-- observer's rule its worker had already stopped trusting its lease.

-- name: look
SELECT status, lock_device, lock_inode, drain_requested, beat, stacks FROM outlast_workers
WHERE id = :id AND registration IS :registration
-- name: show
UPDATE outlast_workers
SET beat = max(beat, :beat), heartbeat_at = :now, lease_expires_at = :now + lease
WHERE id = :id AND registration IS :registration AND status IN ('active', 'draining')
-- name: renew
UPDATE outlast_workers
SET beat = max(beat, :floor) + 1, heartbeat_at = :now, lease_expires_at = :now + lease
WHERE id = :id AND registration IS :registration AND status IN ('active', 'draining')
RETURNING drain_requested, stacks
