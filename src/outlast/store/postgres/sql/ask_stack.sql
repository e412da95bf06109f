-- Ask the worker that runs this attempt ($1, $2) where it is: $4 takes the place of the requests on its row, where they
-- are those ($3) that the caller has read and put one more to. So of two that ask at once one has to read again, and
-- neither takes the other's request away. No other statement writes this column but a registration. A worker that was
-- reaped, or whose attempt has ended or was claimed again, is not asked: what it would answer is refused anyway, by the
-- token. The update conflicts with no KEY SHARE of an exchange; it waits for a beat, a reap or a reconnect, and looks at
-- the row again after that. It is one row, by its id. The notification ($5) only saves a heartbeat.
WITH asked AS (
    UPDATE outlast_workers w SET stacks = $4
    FROM outlast_jobs j
    WHERE j.id = $1::bigint AND j.token = $2::bigint AND j.state = 'running' AND w.id = j.worker_id
      AND w.status IN ('active', 'draining') AND w.stacks = $3
    RETURNING w.id)
SELECT id, CASE WHEN $5::boolean THEN pg_notify(outlast_channel_v1(), 'stack:' || id::text)::text END FROM asked
