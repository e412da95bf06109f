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

-- name: again
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
