-- Mark a worker lost, and why, if its counter still stands where it was seen. FOR UPDATE waits for an exchange
-- under way (its claims become orphans) and keeps later ones from claiming; a beat that commits
-- first changes the counter, and the re-check lets the worker live. Of two reapers one gets the row.
WITH gone AS MATERIALIZED (
    SELECT id FROM outlast_workers
    WHERE id = $1 AND beat = $2 AND status IN ('active', 'draining') FOR UPDATE)
UPDATE outlast_workers w
SET status = 'lost', epoch = w.epoch + 1, stopped_at = clock_timestamp(), cause = $3
FROM gone WHERE w.id = gone.id
RETURNING w.id
