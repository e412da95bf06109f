-- Workers: their rows and beats, and marking workers that are gone as lost.

-- name: raise
-- A worker has seen token :above, so later tokens must be larger. If this file has not drawn it, other workers may also
-- know tokens that were drawn after it. So tokens jump above the time of day in microseconds as well or, if the clock
-- was set back, beyond :above by a step of up to 71 minutes, which grows each second and has a random part.
UPDATE outlast_sequences
SET value = CASE WHEN CAST(:now * 1000000 AS INTEGER) > :above THEN CAST(:now * 1000000 AS INTEGER)
                 ELSE :above + 1000000 + (CAST(:now * 1000000 AS INTEGER) & 4293918720) + (random() & 524287) END
WHERE name = 'token' AND value < :above

-- name: again
-- A row is found by its id and the registration that made it; only active and draining rows change, so a worker that
-- was reaped learns it here. A reconnect waits, by BEGIN IMMEDIATE, for any exchange under way; from then on, an
-- exchange at the old epoch claims nothing.
--
-- "again": a repeated registration gets its row and counts as a beat, above the counter in the lock file. "replace"
-- marks another live worker of the instance lost, in the same transaction. postgres/sql/workers.sql (`register`) argues
-- about both.
UPDATE outlast_workers
SET beat = max(beat, :floor) + 1, heartbeat_at = :now, lease_expires_at = :now + lease
WHERE registration = :registration
RETURNING id, epoch
-- name: replace
UPDATE outlast_workers
SET status = 'lost', epoch = min(epoch, 2147483646) + 1, stopped_at = :now, cause = 'restarted'
WHERE instance = :instance AND status IN ('active', 'draining')
-- name: wake
-- Delete the row of a worker's sleep, unless it holds a job after all.
DELETE FROM outlast_workers
WHERE name = :name AND status = 'stopped' AND cause = 'asleep'
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.worker_id = outlast_workers.id)
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
    stopped_at = CASE WHEN :status = 'stopped' THEN coalesce(stopped_at, :now) END,
    cause = CASE WHEN :asleep IS NULL THEN cause ELSE 'asleep' END,
    lease_expires_at = coalesce(:now + :asleep, lease_expires_at)
WHERE id = :id AND registration IS :registration
  AND (status IN ('active', 'draining') OR status = :status)
-- name: request_drain
UPDATE outlast_workers SET drain_requested = 1
WHERE id IN (SELECT e.value FROM json_each(:ids) AS e) AND status IN ('active', 'draining')
RETURNING id
-- name: presence_off
UPDATE outlast_workers SET presence = NULL, presence_off = :reason
WHERE id = :id AND registration IS :registration
-- name: announce
UPDATE outlast_workers SET tasks = :tasks, lacks = :lacks
WHERE id = :id AND registration IS :registration
-- name: tell_wakeup
UPDATE outlast_workers SET wakeup = :words WHERE id = :id AND registration IS :registration
-- name: tell_failing
UPDATE outlast_workers SET failing = :failing, failing_since = :now - :seconds
WHERE id = :id AND registration IS :registration AND status IN ('active', 'draining')

-- name: beat_seen
-- A beat. With a lock file, the counter in that file is the beat, and "beat_seen" needs no write lock, so no long
-- transaction can starve it; "show_beat" then only keeps the row fresh for people, a few times in each lease, since
-- each commit wakes all workers. Without a lock file, "heartbeat" is the beat. A row that was reaped is never revived:
-- by the observer's rule its worker had already stopped trusting its lease.
SELECT status, lock_device, lock_inode, drain_requested, beat, stacks, heartbeat_at, lease FROM outlast_workers
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
-- The row and the lock file are read again under the write lock, and the worker is marked lost only if the counter has
-- not moved since the observer read it: no beat through the row can come in between. A beat through the file can, in
-- the instant before the commit; that worker had then not beaten for a whole lease and no longer trusts it
-- (model/lease.py), so it loses no job that it still trusts. An exchange waits for this commit, then finds its row lost
-- and claims nothing.
--
-- "tell_gone": postgres/sql/workers.sql argues why the note needs no check.
SELECT id AS worker_id, name, host, boot_id, beat, heartbeat, lease, lock_path, lock_device, lock_inode,
       heartbeat_at, coalesce(cause = 'tether', 0) AS told_gone
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
