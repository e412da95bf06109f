-- Workers with the number of jobs that they hold: those that are there, and the $1 that have gone last, each by
-- an index of their own, and so the running jobs, of which 20,000 are counted at most. Reads only; one snapshot.
WITH held AS MATERIALIZED (
    SELECT worker_id, count(*) AS number
    FROM (SELECT worker_id FROM outlast_jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT 20000) c
    GROUP BY worker_id)
SELECT w.id, w.name, w.host, w.pid, w.status, w.epoch, w.beat, w.heartbeat, w.lease, w.queues,
       w.tasks, coalesce(held.number, 0) AS running,
       extract(epoch FROM w.started_at)::float8 AS started_at,
       extract(epoch FROM w.heartbeat_at)::float8 AS heartbeat_at,
       extract(epoch FROM w.lease_expires_at)::float8 AS lease_expires_at,
       extract(epoch FROM w.stopped_at)::float8 AS stopped_at, w.release, w.lock_path,
       w.tags, w.lacks, w.instance, w.drain_requested, w.cause, w.presence, w.presence_off,
       w.wakeup, w.failing, extract(epoch FROM w.failing_since)::float8 AS failing_since,
       w.boot_id, w.lock_device, w.lock_inode, w.heeds, w.stacks,
       outlast_seconds_v1(statement_timestamp(), w.heartbeat_at) AS unheard
FROM ((SELECT * FROM outlast_workers WHERE status IN ('active', 'draining') ORDER BY boot_id, lock_device, id)
      UNION ALL
      (SELECT * FROM outlast_workers WHERE stopped_at IS NOT NULL ORDER BY stopped_at DESC, id DESC LIMIT $1)) w
LEFT JOIN held ON held.worker_id = w.id
ORDER BY w.id
