-- Workers: their rows, their beats, and the death of those that are gone.
-- Why a call of a function is right against a concurrent claim, reap and late worker: functions/NAME.sql.

-- name: raise
-- larger than this token, and than any of another incarnation of the database
SELECT outlast_begin_incarnation_v1(), outlast_raise_tokens_v1($1)

-- name: register
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

-- name: reconnect
-- Raise the epoch of a worker that is still alive. FOR UPDATE waits for an exchange of the old epoch
-- (it holds FOR KEY SHARE), whose claims can then be reconciled; one that arrives later finds the
-- new epoch and claims nothing. A reap in between is seen by the re-check of the status. The epoch
-- handed in is not asked for: the reply to an earlier reconnect may have been lost. The registration is:
-- an id that was issued again, after the store was set back, is another worker's.
WITH me AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = $1 AND registration IS NOT DISTINCT FROM $2 AND status IN ('active', 'draining')
    FOR UPDATE)
UPDATE outlast_workers w SET epoch = w.epoch + 1 FROM me WHERE w.id = me.id
RETURNING w.epoch

-- name: set_status
-- Move a worker to draining or stopped. FOR UPDATE waits for an exchange under way; a later one
-- finds the new status and claims nothing. Saying the same twice is not a loss of the lease.
WITH me AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = $1 AND registration IS NOT DISTINCT FROM $3 AND (status IN ('active', 'draining') OR status = $2::text) FOR UPDATE)
UPDATE outlast_workers w
SET status = $2::text,
    stopped_at = CASE WHEN $2::text = 'stopped' THEN coalesce(w.stopped_at, clock_timestamp()) END
FROM me WHERE w.id = me.id
RETURNING w.id

-- name: request_drain
-- Ask live workers to drain; returns those that are asked, now or before. No other statement writes this
-- column. The lock does not conflict with the KEY SHARE of an exchange; it waits for a reap or a
-- reconnect (FOR UPDATE) and then checks the status again: who was reaped meanwhile is not asked.
-- The rows are locked in the order of their ids. The notification only saves a heartbeat.
WITH chosen AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = ANY($1::bigint[]) AND status IN ('active', 'draining')
    ORDER BY id FOR NO KEY UPDATE),
asked AS (
    UPDATE outlast_workers w SET drain_requested = true FROM chosen WHERE w.id = chosen.id
    RETURNING w.id)
SELECT id, CASE WHEN $2::boolean THEN pg_notify(outlast_channel_v1(), 'drain:' || id::text)::text END FROM asked

-- name: announce
-- Replace the tasks that a worker's row shows. For people and for `unservable`: it guards nothing.
UPDATE outlast_workers SET tasks = $2, lacks = $3 WHERE id = $1 AND registration IS NOT DISTINCT FROM $4

-- name: tell_wakeup
-- Say on a worker's row by what it is woken. For people: it guards nothing.
UPDATE outlast_workers SET wakeup = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3

-- name: tell_failing
-- Say on a worker's row which of its duties fails, by what, and for how many seconds already; nulls: none
-- does. For people: it guards nothing, and races with nothing but the worker's own beats. A row that has
-- ended keeps what was said last.
UPDATE outlast_workers
SET failing = $2, failing_since = statement_timestamp() - $3::float8 * interval '1 second'
WHERE id = $1 AND registration IS NOT DISTINCT FROM $4 AND status IN ('active', 'draining')

-- name: count_peers
-- How many active workers serve the same queues and tasks as this one, itself included: by that number those
-- spread what they do when all are woken. Reads only, and guards nothing.
SELECT count(*) FROM outlast_workers me
JOIN outlast_workers w ON w.status = 'active' AND w.queues = me.queues AND w.tasks = me.tasks
WHERE me.id = $1 AND me.registration IS NOT DISTINCT FROM $2

-- name: presence_hold
SELECT outlast_hold_presence_v1($1, $2, $3, $4)

-- name: presence_off
-- Say that a worker's presence proves nothing. A worker that looks at the row from now on does not
-- judge by the lock; a reap that has looked before reads the row again when it has it locked.
UPDATE outlast_workers SET presence = NULL, presence_off = $2 WHERE id = $1
  AND registration IS NOT DISTINCT FROM $3

-- name: heartbeat
SELECT * FROM outlast_heartbeat_v1($1, $2)

-- name: peek
SELECT * FROM outlast_peek_v1($1)

-- name: observe
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

-- name: keep_watch
SELECT outlast_keep_watch_v1($1, $2)

-- name: tell_gone
-- Say on the rows that name this lock file that their worker is gone, and what it had let begin: its tether
-- has found the lock free (worker/lease/last_will.py). Nothing is reaped here: the next look shows it, and
-- the reap of any worker follows, with all that makes a reap right. The notification only saves the time to
-- that look.
--
-- What is said stays true whenever it arrives, so that nothing has to be checked against it: a lock that was
-- free once is free for good, since its file is of one process, and what that has left. A worker that is
-- started again has a file of its own, and so another row, which is not named here; so is every
-- worker of another boot or host, and one that was given this row's id after the store was set back.
-- A beat of the dead that is committed later changes the counter only: a reap that has not seen it tries
-- again with the next look. A claim of the dead that is committed later is an orphan after the reap.
--
-- The lock waits for a reap or a reconnect (FOR UPDATE), and then checks the status again: a row that has
-- ended keeps its cause. It does not conflict with the KEY SHARE of an exchange whose reply is read no more.
-- Rows are locked in the order of their ids; there is one, but for a moment of a registration.
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
-- Mark a worker lost, and why, if its counter still stands where it was seen. FOR UPDATE keeps later
-- exchanges from claiming, and a beat that has been committed has changed the counter: the re-check lets
-- the worker live. It waits for no lock (SKIP LOCKED): one row that stays locked must not delay the
-- reaping of other workers. While an exchange, a beat or another reap holds the row, the answer is
-- "held", and the caller tries again with the next look: an exchange that has ended by then has left
-- claims that become orphans. No worker can put that off by exchanges alone: it stops them itself when
-- its lease ends without a beat. A session that does not end is ended: see outlast_terminate_stuck_v1.
--
-- Where presence is the cause, it is looked at again once the row is locked, in its newest version: a
-- worker that took it back meanwhile, or is seen from another incarnation of the database, lives. One
-- that takes it back after that finds its row lost, as by any reap.
--
-- What had begun was said with a last will, if there was one (`tell_gone`): that stands.
WITH gone AS MATERIALIZED (
    SELECT id, registration, presence FROM outlast_workers
    WHERE id = $1 AND beat = $2 AND status IN ('active', 'draining') FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE outlast_workers w
    SET status = 'lost', epoch = least(w.epoch, 2147483646) + 1, stopped_at = clock_timestamp(), cause = $3,
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
