-- What is paused: noted, ended, acknowledged and read.

-- name: pause
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

-- name: resume
-- Resume what was paused; no row: it was not. Workers take it again when they have read that; a worker that
-- has not yet only starts it later. The notification only saves a look.
WITH resumed AS (
    DELETE FROM outlast_pauses WHERE kind = $1 AND name = $2
    RETURNING id, kind, name, paused_at, paused_by, reason, stop)
SELECT id, kind, name, extract(epoch FROM paused_at)::float8 AS paused_at, paused_by, reason, stop,
       CASE WHEN $3::boolean THEN pg_notify(outlast_channel_v1(), 'pause')::text END
FROM resumed

-- name: pauses
-- All that is paused, by id. Reads only; one snapshot.
SELECT id, kind, name, extract(epoch FROM paused_at)::float8 AS paused_at, paused_by, reason, stop
FROM outlast_pauses ORDER BY id

-- name: acknowledge_pauses
-- Say on a worker's row which pauses it acts on: from now on it starts nothing of them. Written after the
-- worker has given back what had not begun, so that its reader may rely on it. A plain update: it does
-- not conflict with the KEY SHARE of an exchange. Another worker's row, under an id that was issued again, is
-- left alone.
UPDATE outlast_workers SET acknowledged_pauses = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3
