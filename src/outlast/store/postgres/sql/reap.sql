-- Mark a worker lost, and why, if its counter still stands where it was seen. FOR UPDATE keeps later
-- exchanges from claiming, and a beat that has been committed has changed the counter: the re-check lets
-- the worker live. It waits for no lock (SKIP LOCKED): one row that stays locked must not delay the
-- reaping of other workers. While an exchange, a beat or another reap holds the row, the answer is
-- "held", and the caller tries again with the next look: an exchange that has ended by then has left
-- claims that become orphans. No worker can put that off by exchanges alone: it stops them itself when
-- its lease ends without a beat. A session that does not end is ended: see outlast_free_v1.
--
-- Where presence is the cause, it is looked at again once the row is locked, in its newest version: a
-- worker that took it back meanwhile, or is seen from another incarnation of the database, lives. One
-- that takes it back after that finds its row lost, as by any reap.
--
-- What had begun was said with a last will, if there was one (tell_gone.sql): that stands.
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
