-- Workers: their rows, their beats, and those that are found gone.

-- name: raise
-- A worker has seen this token, or a later one is drawn. Where it was not drawn from this file, others may know
-- tokens that were drawn after it: above the time of day, too, or beyond by a step of up to 71 minutes, by
-- chance, where the clock was set back.
UPDATE outlast_sequences
SET value = CASE WHEN CAST(:now * 1000000 AS INTEGER) > :above THEN CAST(:now * 1000000 AS INTEGER)
                 ELSE :above + 1000000 + (random() & 4294967295) END
WHERE name = 'token' AND value < :above

-- name: again
-- A worker's own row, by its id and the registration that made it: an id that was issued again, after
-- the file was set back, is another worker's. Only active and draining rows change, so a worker that was
-- reaped learns it here; a reconnect waits, by BEGIN IMMEDIATE, for any exchange under way, and from then on
-- an exchange at the old epoch claims nothing. "replace" marks lost another worker that lives under the
-- instance name of a worker that registers, in the same transaction: the platform says that the old
-- process is gone, so no counter is asked for. Its exchange and its beat find the row lost.
-- "again": a worker whose answer was lost asks again under the same registration, a key that is
-- unique, and is given the row that it made before; so is a first request that is done last. It
-- counts as a beat, above what the lock file shows, since the worker trusts its lease from when it
-- asked this time. A row that was found gone stays gone; the worker's first beat shows that.
UPDATE outlast_workers
SET beat = max(beat, :floor) + 1, heartbeat_at = :now, lease_expires_at = :now + lease
WHERE registration = :registration
RETURNING id, epoch
-- name: replace
UPDATE outlast_workers
SET status = 'lost', epoch = min(epoch, 2147483646) + 1, stopped_at = :now, cause = 'restarted'
WHERE instance = :instance AND status IN ('active', 'draining')
-- name: register
INSERT INTO outlast_workers
    (id, name, host, pid, boot_id, heartbeat, lease, queues, tasks, tags, lacks, instance, release,
     started_at, heartbeat_at, lease_expires_at, lock_path, lock_device, lock_inode, registration, stacks)
VALUES
    (:id, :name, :host, :pid, :boot_id, :heartbeat, :lease, :queues, :tasks, :tags, :lacks, :instance,
     :release,
     :now, :now, :now + :lease, :lock_path, :lock_device, :lock_inode,
     :registration, '')
-- name: reconnect
UPDATE outlast_workers SET epoch = epoch + 1
WHERE id = ? AND registration IS ? AND status IN ('active', 'draining') RETURNING epoch
-- name: set_status
UPDATE outlast_workers
SET status = :status,
    stopped_at = CASE WHEN :status = 'stopped' THEN coalesce(stopped_at, :now) END
WHERE id = :id AND registration IS :registration
  AND (status IN ('active', 'draining') OR status = :status)
-- name: request_drain
UPDATE outlast_workers SET drain_requested = 1
WHERE id = ? AND status IN ('active', 'draining')
-- name: presence_off
UPDATE outlast_workers SET presence = NULL, presence_off = :reason
WHERE id = :id AND registration IS :registration
-- name: announce
UPDATE outlast_workers SET tasks = :tasks, lacks = :lacks
WHERE id = :id AND registration IS :registration
-- name: tell_wakeup
UPDATE outlast_workers SET wakeup = :words WHERE id = :id AND registration IS :registration
-- name: tell_failing
-- A row that has ended keeps what was said last.
UPDATE outlast_workers SET failing = :failing, failing_since = :now - :seconds
WHERE id = :id AND registration IS :registration AND status IN ('active', 'draining')

-- name: beat_seen
-- A beat. With a lock file the counter in that file is the beat, and "look" needs no write lock,
-- so no long transaction can starve it; "show" then only keeps the row fresh for
-- people. Without one, "renew" is the beat. A row that was reaped is never revived: by the
-- observer's rule its worker had already stopped trusting its lease.
SELECT status, lock_device, lock_inode, drain_requested, beat, stacks FROM outlast_workers
WHERE id = :id AND registration IS :registration
-- name: show_beat
UPDATE outlast_workers
SET beat = max(beat, :beat), heartbeat_at = :now, lease_expires_at = :now + lease
WHERE id = :id AND registration IS :registration AND status IN ('active', 'draining')
-- name: heartbeat
UPDATE outlast_workers
SET beat = max(beat, :floor) + 1, heartbeat_at = :now, lease_expires_at = :now + lease
WHERE id = :id AND registration IS :registration AND status IN ('active', 'draining')
RETURNING drain_requested, stacks

-- name: observe
-- Find workers that are gone, and mark them lost.
--
-- The row and the lock file are read again under the write lock and the mark is made only if
-- the counter still stands where the observer saw it: no beat through the row can slip in
-- between. A beat through the file can, in the instant before the commit; that worker had then
-- not beaten for a whole lease and no longer trusts it (model/lease.py), so nothing is robbed.
-- An exchange waits for our commit, then finds its row lost and claims nothing.
-- "tell_gone" is of a tether that has found the lock of its worker free: that is true of these rows
-- whenever it is said, and of no others, since each worker has a lock file of its own.
SELECT id, name, host, boot_id, beat, heartbeat, lease, lock_path, lock_device, lock_inode,
       heartbeat_at, coalesce(cause = 'tether', 0)
FROM outlast_workers WHERE status IN ('active', 'draining') ORDER BY id
-- name: beat_of
SELECT beat FROM outlast_workers WHERE id = ? AND status IN ('active', 'draining')
-- name: reap
UPDATE outlast_workers SET status = 'lost', epoch = min(epoch, 2147483646) + 1, stopped_at = :now, cause = :cause,
    begun = coalesce(begun, :begun)
WHERE id = :id AND status IN ('active', 'draining')
-- name: tell_gone
UPDATE outlast_workers SET cause = 'tether', begun = :begun
WHERE boot_id = :boot_id AND lock_path = :path AND lock_device = :device AND lock_inode = :inode
  AND status IN ('active', 'draining')
