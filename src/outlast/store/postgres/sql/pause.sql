-- Pause a queue, a task, a tenant or all ($1, $2), or say again that it is: by whom ($3), why ($4), and whether
-- attempts that run are asked to stop ($5). Again: the time of the first stays, and what is not given; the id
-- is a new one, so that workers acknowledge it again. Of two at once the second waits and changes the row of
-- the first. An exchange that is under way sees nothing of it: its worker does not start what it brings
-- once it has acknowledged, and the pause counts as in force only when all have. The notification only saves
-- a look.
WITH paused AS (
    INSERT INTO outlast_pauses AS mine (kind, name, paused_at, paused_by, reason, stop)
    VALUES ($1, $2, clock_timestamp(), $3, $4, $5)
    ON CONFLICT (kind, name) DO UPDATE
    SET id = DEFAULT, paused_by = coalesce(excluded.paused_by, mine.paused_by),
        reason = coalesce(excluded.reason, mine.reason), stop = excluded.stop
    RETURNING id, kind, name, paused_at, paused_by, reason, stop)
SELECT id, kind, name, extract(epoch FROM paused_at)::float8 AS paused_at, paused_by, reason, stop,
       CASE WHEN $6::boolean THEN pg_notify(outlast_channel_v1(), 'pause')::text END
FROM paused
