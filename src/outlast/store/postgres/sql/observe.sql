-- One look at all workers that hold a lease, and at what no worker looks after (see
-- outlast_astray_v1): these columns are the same in each row, and there is always one.
-- Reads only: the reap checks the counter and the lock again. The locks are read after the snapshot
-- of the rows was taken, and a worker writes its row after it has its lock: so "absent" is said only
-- of one that had it.
WITH now AS MATERIALIZED (
    SELECT outlast_incarnation_v1() AS incarnation, outlast_presence_held_v1() AS held,
           (SELECT s.store_id FROM outlast_schema s WHERE s.number = 1) AS store)
SELECT a.orphans, a.overdue, a.now, a.next_tick, now.incarnation AS here,
       w.id AS worker_id, w.name, w.host, w.boot_id, w.beat, w.heartbeat, w.lease, w.lock_path,
       w.lock_device, w.lock_inode,
       outlast_seconds_v1(statement_timestamp(), w.heartbeat_at) AS age,
       outlast_presence_v1(
           now.store, w.id, w.registration, w.presence, now.incarnation, now.held) AS presence,
       w.presence AS incarnation, coalesce(w.cause = 'tether', false) AS told_gone,
       (SELECT coalesce(string_agg(p.id::text, ',' ORDER BY p.id), '') FROM outlast_pauses p) AS pauses
FROM outlast_astray_v1($1::float8) a CROSS JOIN now
LEFT JOIN outlast_workers w ON w.status IN ('active', 'draining')
ORDER BY w.id
