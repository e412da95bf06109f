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
