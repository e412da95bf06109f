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
