-- Make a row for a worker, active, its lease running. A new row races with nothing. The token
-- sequence is raised by a statement before this one.
--
-- A worker whose answer was lost asks again under the same registration, a key that is unique: it is
-- given the row that it made before. That counts as a beat, since the worker trusts its lease from when
-- it asked this time. Whichever request comes first makes the row; the other one, also where it was held
-- up and arrives last, waits for that row and beats once more. A row that was found gone meanwhile stays
-- gone, and the worker's first beat shows that.
--
-- Where the worker succeeds another of its instance name, that row is marked lost by the same
-- statement, with the locks of a reap: FOR UPDATE waits for an exchange under way (its claims become
-- orphans, which the new worker reclaims) and keeps later ones from claiming, and a beat that waits
-- for it finds the row lost. No counter is asked for: the platform says that the old process is gone.
-- Rows are locked by id, as nowhere else more than one is locked. Of two registrations under one name
-- at once, which the platform rules out, neither sees the other's row; both stand until the next one.
WITH before AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE instance = $16 AND status IN ('active', 'draining')
      AND (registration = $17) IS NOT TRUE
    ORDER BY id FOR UPDATE
), replaced AS (
    UPDATE outlast_workers w
    SET status = 'lost', epoch = least(w.epoch, 2147483646) + 1, stopped_at = clock_timestamp(), cause = 'restarted'
    FROM before WHERE w.id = before.id
    RETURNING w.id)
INSERT INTO outlast_workers AS mine (
    name, host, pid, boot_id, heartbeat, lease, queues, tasks, tags, lacks, instance, release,
    lock_path, lock_device, lock_inode, registration, stacks, started_at, heartbeat_at, lease_expires_at)
VALUES ($1, $2, $3, $4, $5::float8, $6::float8, $7, $8, $9, $10, $11, $12, $13, $14, $15, $17, '',
        statement_timestamp(), statement_timestamp(),
        statement_timestamp() + least($6::float8, 1e9) * interval '1 second')
ON CONFLICT (registration) DO UPDATE
SET beat = mine.beat + 1, heartbeat_at = excluded.heartbeat_at,
    lease_expires_at = excluded.lease_expires_at
RETURNING id, epoch, (SELECT count(*) FROM replaced)
