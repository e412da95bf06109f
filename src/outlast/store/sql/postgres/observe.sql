-- One look at all workers that hold a lease. Reads only: the reap checks the counter again.
SELECT id, name, host, boot_id, beat, heartbeat, lease, lock_path, lock_device, lock_inode,
       extract(epoch FROM statement_timestamp() - heartbeat_at)::float8 AS age
FROM outlast_workers WHERE status IN ('active', 'draining') ORDER BY id
