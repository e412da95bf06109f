-- Make a row for a worker, active, its lease running. A new row races with nothing. The token
-- sequence is raised by a statement before this one.
INSERT INTO outlast_workers (
    name, host, pid, boot_id, heartbeat, lease, queues, tasks, tags, lacks, instance, release,
    lock_path, lock_device, lock_inode, started_at, heartbeat_at, lease_expires_at)
VALUES ($1, $2, $3, $4, $5::float8, $6::float8, $7, $8, $9, $10, $11, $12, $13, $14, $15,
        statement_timestamp(), statement_timestamp(),
        statement_timestamp() + least($6::float8, 1e9) * interval '1 second')
RETURNING id, epoch
