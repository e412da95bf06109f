-- Find workers that are gone, and mark them lost.
--
-- The row and the lock file are read again under the write lock and the mark is made only if
-- the counter still stands where the observer saw it: no beat through the row can slip in
-- between. A beat through the file can, in the instant before the commit; that worker had then
-- not beaten for a whole lease and no longer trusts it (model/lease.py), so nothing is robbed.
-- An exchange waits for our commit, then finds its row lost and claims nothing.
-- "tell_gone" is of a tether that has found the lock of its worker free: that is true of these rows
-- whenever it is said, and of no others, since each worker has a lock file of its own.

-- name: observe
SELECT id, name, host, boot_id, beat, heartbeat, lease, lock_path, lock_device, lock_inode,
       heartbeat_at, coalesce(cause = 'tether', 0)
FROM outlast_workers WHERE status IN ('active', 'draining') ORDER BY id
-- name: look_again
SELECT beat FROM outlast_workers WHERE id = ? AND status IN ('active', 'draining')
-- name: mark_lost
UPDATE outlast_workers SET status = 'lost', epoch = min(epoch, 2147483646) + 1, stopped_at = :now, cause = :cause,
    begun = coalesce(begun, :begun)
WHERE id = :id AND status IN ('active', 'draining')
-- name: tell_gone
UPDATE outlast_workers SET cause = 'tether', begun = :begun
WHERE boot_id = :boot_id AND lock_path = :path AND lock_device = :device AND lock_inode = :inode
  AND status IN ('active', 'draining')
