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
