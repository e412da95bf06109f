-- Mark a worker lost, and why, if its counter still stands where it was seen. FOR UPDATE waits for
-- an exchange under way (its claims become orphans) and keeps later ones from claiming; a beat that
-- commits first changes the counter, and the re-check lets the worker live. Of two reapers one gets
-- the row. Where presence is the cause, it is looked at again once the row is locked, in its newest
-- version: a worker that took it back meanwhile, or is seen from another incarnation of the
-- database, lives. One that takes it back after that finds its row lost, as by any reap.
WITH gone AS MATERIALIZED (
    SELECT id, presence FROM outlast_workers
    WHERE id = $1 AND beat = $2 AND status IN ('active', 'draining') FOR UPDATE)
UPDATE outlast_workers w
SET status = 'lost', epoch = w.epoch + 1, stopped_at = clock_timestamp(), cause = $3
FROM gone
WHERE w.id = gone.id AND ($3 <> 'presence' OR 'absent' = outlast_presence_v1(
    gone.id, gone.presence, outlast_incarnation_v1(), outlast_presence_keys_v1()))
RETURNING w.id
