-- Resume what was paused; no row: it was not. Workers take it again when they have read that; a worker that
-- has not yet only starts it later. The notification only saves a look.
WITH resumed AS (
    DELETE FROM outlast_pauses WHERE kind = $1 AND name = $2
    RETURNING id, kind, name, paused_at, paused_by, reason, stop)
SELECT id, kind, name, extract(epoch FROM paused_at)::float8 AS paused_at, paused_by, reason, stop,
       CASE WHEN $3::boolean THEN pg_notify(outlast_channel_v1(), 'pause')::text END
FROM resumed
