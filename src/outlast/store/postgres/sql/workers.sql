-- Workers: their rows and beats, and marking workers that are gone as lost. functions/NAME.sql argues why a call of a
-- function is right against a concurrent claim, reap and late worker.

-- name: raise
-- Make later tokens larger than $1, and larger than any token of another incarnation of the database; and raise the
-- other sequences above rows that were copied here without them.
SELECT outlast_begin_incarnation_v1(), outlast_raise_numbers_v1(true), outlast_raise_tokens_v1($1)

-- name: register
-- Insert a worker's row. A new row races with nothing. A statement before this one has raised the token sequence.
--
-- A worker whose answer was lost asks again under the same registration, which is unique, and gets the row that it made
-- before. That counts as a beat, since the worker trusts its lease from the time of its latest request. The first
-- request to arrive inserts the row; the other, even if it was sent earlier, waits for that row and beats once more. A
-- row that was meanwhile marked as lost stays lost, and the worker's first beat shows that.
--
-- The row of another worker of the instance is marked lost with the locks of a reap: FOR UPDATE waits for an exchange
-- under way (its claims become orphans) and keeps later ones from claiming, and a beat that waits for it finds the row
-- lost. No counter is compared: the platform guarantees that the old process is gone. Rows are locked in the order of
-- their ids, as in `request_drain` and `tell_gone`, so that these never deadlock. If two workers register under one
-- name at once, which the platform rules out, neither sees the other's row; both rows stand until the next
-- registration.
--
-- A worker that wakes replaces the row of its sleep. A stopped worker claims nothing, so it gets no new job while this
-- statement checks that it holds none.
WITH before AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE instance = $16 AND status IN ('active', 'draining')
      AND (registration = $17) IS NOT TRUE
    ORDER BY id FOR UPDATE
), replaced AS (
    UPDATE outlast_workers w
    SET status = 'lost', epoch = least(w.epoch, 2147483646) + 1, cause = 'restarted',
        stopped_at = date_part('epoch', clock_timestamp())
    FROM before WHERE w.id = before.id
    RETURNING w.id
), slept AS (
    DELETE FROM outlast_workers w
    WHERE w.name = $1 AND w.status = 'stopped' AND w.cause = 'asleep'
      AND NOT EXISTS (SELECT FROM outlast_jobs j WHERE j.worker_id = w.id))
INSERT INTO outlast_workers AS mine (
    name, host, pid, boot_id, heartbeat, lease, queues, tasks, tags, lacks, instance, release,
    lock_path, lock_device, lock_inode, registration, stacks, started_at, heartbeat_at, lease_expires_at)
VALUES ($1, $2, $3, $4, $5::float8, $6::float8, $7, $8, $9, $10, $11, $12, $13, $14, $15, $17, '',
        date_part('epoch', statement_timestamp()), date_part('epoch', statement_timestamp()),
        date_part('epoch', statement_timestamp()) + least($6::float8, 1e9))
ON CONFLICT (registration) DO UPDATE
SET beat = mine.beat + 1, heartbeat_at = excluded.heartbeat_at,
    lease_expires_at = excluded.lease_expires_at
RETURNING id, epoch, (SELECT count(*) FROM replaced), (SELECT i.id::text FROM outlast_incarnation i)

-- name: reconnect
-- Raise the epoch of a worker that is still alive. FOR UPDATE waits for an exchange of the old epoch (it holds FOR KEY
-- SHARE), whose claims can then be reconciled; an exchange that arrives later finds the new epoch and claims nothing.
-- If a reap comes in between, the re-check of the status sees it. The epoch that the worker knows is not compared,
-- because the reply to an earlier reconnect may have been lost. The registration is compared: if the store was set
-- back, the id may have been issued again, to another worker. Such a store may also repeat this epoch, so the worker
-- trusts no claim of another incarnation than this one (`exchange.py`).
WITH me AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = $1 AND registration IS NOT DISTINCT FROM $2 AND status IN ('active', 'draining')
    FOR UPDATE)
UPDATE outlast_workers w SET epoch = w.epoch + 1 FROM me WHERE w.id = me.id
RETURNING w.epoch, (SELECT i.id::text FROM outlast_incarnation i) AS incarnation

-- name: set_status
-- FOR UPDATE waits for an exchange under way; a later one finds the new status and claims nothing. A worker that sets
-- the same status twice has not lost its lease. $4: the seconds of a sleep, shown to people.
WITH me AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = $1 AND registration IS NOT DISTINCT FROM $3 AND (status IN ('active', 'draining') OR status = $2::text) FOR UPDATE)
UPDATE outlast_workers w
SET status = $2::text,
    stopped_at = CASE WHEN $2::text = 'stopped' THEN coalesce(w.stopped_at, date_part('epoch', clock_timestamp())) END,
    cause = CASE WHEN $4::float8 IS NULL THEN w.cause ELSE 'asleep' END,
    lease_expires_at = coalesce(date_part('epoch', clock_timestamp()) + $4::float8, w.lease_expires_at)
FROM me WHERE w.id = me.id
RETURNING w.id

-- name: request_drain
-- Ask workers to drain, and return those that have been asked, now or before. The lock does not conflict with the KEY
-- SHARE of an exchange; it waits for a reap or a reconnect (FOR UPDATE) and then re-checks the status. Rows are locked
-- in the order of their ids.
WITH chosen AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = ANY(:ids::text::bigint[]) AND status IN ('active', 'draining')
    ORDER BY id FOR NO KEY UPDATE),
asked AS (
    UPDATE outlast_workers w SET drain_requested = true FROM chosen WHERE w.id = chosen.id
    RETURNING w.id)
SELECT id, CASE WHEN :notify::boolean THEN pg_notify(outlast_channel_v1(), 'drain:' || id::text)::text END FROM asked

-- name: announce
-- Write what people and `unservable` read: no guard depends on it.
UPDATE outlast_workers SET tasks = $2, lacks = $3 WHERE id = $1 AND registration IS NOT DISTINCT FROM $4

-- name: tell_wakeup
-- Write what people read: no guard depends on it.
UPDATE outlast_workers SET wakeup = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3

-- name: tell_failing
-- Write what people read: no guard depends on it. A row that has ended keeps its last text.
UPDATE outlast_workers
SET failing = $2, failing_since = date_part('epoch', statement_timestamp()) - $3::float8
WHERE id = $1 AND registration IS NOT DISTINCT FROM $4 AND status IN ('active', 'draining')

-- name: count_peers
-- Count the active workers that serve the same queues and tasks as this one, itself included, and those of them that
-- registered before it. Workers use the numbers to take turns when all are woken. Reads only; no guard depends on it.
SELECT count(*) AS peers, count(*) FILTER (WHERE w.id < me.id) AS before FROM outlast_workers me
JOIN outlast_workers w ON w.status = 'active' AND w.queues = me.queues AND w.tasks = me.tasks
WHERE me.id = $1 AND me.registration IS NOT DISTINCT FROM $2

-- name: presence_hold
SELECT outlast_hold_presence_v1($1, $2, $3, $4)

-- name: presence_off
-- A look that reads the row from now on does not judge by the lock; a reap that was decided by an earlier look reads
-- the row again once it has locked it.
UPDATE outlast_workers SET presence = NULL, presence_off = $2 WHERE id = $1
  AND registration IS NOT DISTINCT FROM $3

-- name: heartbeat
SELECT * FROM outlast_heartbeat_v1($1, $2)

-- name: peek
SELECT * FROM outlast_peek_v1($1)

-- name: observe
-- The columns of outlast_astray_v1 are the same in each row, and there is always one row. The reap checks the counter
-- and the lock again. The locks are read after the snapshot of the rows is taken, and a worker writes its row after it
-- has its lock: so the answer is "absent" only for a worker that had the lock and lost it.
WITH now AS MATERIALIZED (
    SELECT outlast_incarnation_v1() AS incarnation, outlast_presence_held_v1() AS held,
           (SELECT s.store_id FROM outlast_schema s WHERE s.number = 1) AS store)
SELECT a.orphans, a.overdue, a.now, a.next_tick, now.incarnation AS here,
       w.id AS worker_id, w.name, w.host, w.boot_id, w.beat, w.heartbeat, w.lease, w.lock_path,
       w.lock_device, w.lock_inode,
       date_part('epoch', statement_timestamp()) - w.heartbeat_at AS age,
       outlast_presence_v1(
           now.store, w.id, w.registration, w.presence, now.incarnation, now.held) AS presence,
       w.presence AS incarnation, coalesce(w.cause = 'tether', false) AS told_gone,
       (SELECT coalesce(string_agg(p.id::text, ',' ORDER BY p.id), '') FROM outlast_pauses p) AS pauses
FROM outlast_astray_v1($1::float8) a CROSS JOIN now
LEFT JOIN outlast_workers w ON w.status IN ('active', 'draining')
ORDER BY w.id

-- name: keep_watch
SELECT outlast_keep_watch_v1($1, $2)

-- name: tell_gone
-- Note on the rows that name this lock file that their worker is gone, and the newest token that it let begin. The
-- worker's tether has found the lock free (worker/lease/last_will.py). Any worker's reap follows, with all its checks.
--
-- The note needs no check on arrival: a lock that was free once stays free, since the file belongs to one process and
-- its descendants. A worker that is started again has its own file, and so another row; so has a worker of another boot
-- or host, and one that was given this row's id after the store was set back. A beat of the dead worker that is
-- committed later changes only the counter: a reap that has not seen it tries again with the next look. A job claimed
-- later is an orphan after the reap.
--
-- The lock waits for a reap or a reconnect (FOR UPDATE) and then re-checks the status: a row that has ended keeps its
-- cause. It does not conflict with the KEY SHARE of an exchange whose client is gone. Rows are locked in the order of
-- their ids.
WITH gone AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE boot_id = $1 AND lock_path = $2 AND lock_device = $3 AND lock_inode = $4
      AND status IN ('active', 'draining')
    ORDER BY id FOR NO KEY UPDATE),
told AS (
    UPDATE outlast_workers w SET cause = 'tether', begun = $5::bigint FROM gone WHERE w.id = gone.id
    RETURNING w.id)
SELECT id, CASE WHEN $6::boolean THEN pg_notify(outlast_channel_v1(), 'gone:' || id::text)::text END FROM told

-- name: reap
-- Mark a worker as lost, with the cause, if its counter has not moved since it was read. FOR UPDATE keeps later
-- exchanges from claiming. If a beat was committed meanwhile, the re-check sees another counter and lets the worker
-- live.
--
-- The reap waits for no lock (SKIP LOCKED): one row must not delay the reaping of other workers. While an exchange, a
-- beat or another reap holds the row, the answer is "held", and the caller tries again with the next look; claims of
-- that exchange become orphans. A worker cannot postpone its reap by exchanges alone: it stops them itself when its
-- lease ends without a beat. A session that does not end is terminated (outlast_terminate_stuck_v1).
--
-- If presence is the cause, it is judged again once the row is locked: a worker that has its lock back by then, or is
-- seen from another incarnation of the database, lives. A worker that takes it back later finds its row lost.
--
-- If a last will (`tell_gone`) has noted which attempts had begun, that note stays.
WITH gone AS MATERIALIZED (
    SELECT id, registration, presence FROM outlast_workers
    WHERE id = $1 AND beat = $2 AND status IN ('active', 'draining') FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE outlast_workers w
    SET status = 'lost', epoch = least(w.epoch, 2147483646) + 1, stopped_at = date_part('epoch', clock_timestamp()), cause = $3,
        begun = coalesce(w.begun, $4)
    FROM gone
    WHERE w.id = gone.id AND ($3 <> 'presence' OR 'absent' = outlast_presence_v1(
        (SELECT s.store_id FROM outlast_schema s WHERE s.number = 1), gone.id, gone.registration, gone.presence,
        outlast_incarnation_v1(), outlast_presence_held_v1()))
    RETURNING w.id)
SELECT EXISTS (SELECT FROM reaped) AS reaped,
       NOT EXISTS (SELECT FROM gone) AND EXISTS (
           SELECT FROM outlast_workers
           WHERE id = $1 AND beat = $2 AND status IN ('active', 'draining')) AS held

-- name: terminate_stuck
SELECT outlast_terminate_stuck_v1($1, $2)
