-- Workers with the number of jobs that they hold: those that are there, and the $1 that have gone last.
-- Reads only; one snapshot.
SELECT w.id, w.name, w.host, w.pid, w.status, w.epoch, w.beat, w.heartbeat, w.lease, w.queues,
       w.tasks, (SELECT count(*) FROM outlast_jobs j WHERE j.worker_id = w.id) AS running,
       extract(epoch FROM w.started_at)::float8 AS started_at,
       extract(epoch FROM w.heartbeat_at)::float8 AS heartbeat_at,
       extract(epoch FROM w.lease_expires_at)::float8 AS lease_expires_at,
       extract(epoch FROM w.stopped_at)::float8 AS stopped_at, w.release, w.lock_path,
       w.tags, w.lacks, w.instance, w.drain_requested, w.cause, w.presence, w.presence_off,
       w.wakeup, w.failing, extract(epoch FROM w.failing_since)::float8 AS failing_since,
       w.boot_id, w.lock_device, w.lock_inode, w.heeds,
       outlast_seconds_v1(statement_timestamp(), w.heartbeat_at) AS unheard
FROM outlast_workers w
WHERE w.status IN ('active', 'draining') OR w.id IN (
    SELECT g.id FROM outlast_workers g WHERE g.status IN ('stopped', 'lost')
    ORDER BY g.stopped_at DESC, g.id DESC LIMIT $1)
ORDER BY w.id
