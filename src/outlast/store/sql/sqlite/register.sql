-- A worker's own row. Only active and draining rows change, so a worker that was reaped learns
-- it here; a reconnect waits, by BEGIN IMMEDIATE, for any exchange under way, and from then on
-- an exchange at the old epoch claims nothing.

-- name: register
INSERT INTO outlast_workers
    (id, name, host, pid, boot_id, heartbeat, lease, queues, tasks, tags, lacks, instance, release,
     started_at, heartbeat_at, lease_expires_at, lock_path, lock_device, lock_inode)
VALUES
    (:id, :name, :host, :pid, :boot_id, :heartbeat, :lease, :queues, :tasks, :tags, :lacks, :instance,
     :release,
     :now, :now, :now + :lease, :lock_path, :lock_device, :lock_inode)
-- name: reconnect
UPDATE outlast_workers SET epoch = epoch + 1
WHERE id = ? AND status IN ('active', 'draining') RETURNING epoch
-- name: set_status
UPDATE outlast_workers
SET status = :status,
    stopped_at = CASE WHEN :status = 'stopped' THEN coalesce(stopped_at, :now) END
WHERE id = :id AND (status IN ('active', 'draining') OR status = :status)
-- name: announce
UPDATE outlast_workers SET tasks = ?, lacks = ? WHERE id = ?
