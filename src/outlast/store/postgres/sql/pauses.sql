-- Pauses: set, ended, acknowledged and read.

-- name: pause
-- A repeated pause keeps the time of the first one, and its actor and reason if none is given. It draws a new id, so
-- that workers acknowledge it again. Of two calls at once, the second waits and changes the row of the first. An
-- exchange under way does not see the pause: its worker, once it has acknowledged the pause, does not start the jobs
-- claimed by that exchange, and the pause counts as in force only when all workers have acknowledged it.
WITH paused AS (
    INSERT INTO outlast_pauses AS mine (kind, name, paused_at, paused_by, reason, stop)
    VALUES (:kind, :name, date_part('epoch', clock_timestamp()), :paused_by, :reason, :stop)
    ON CONFLICT (kind, name) DO UPDATE
    SET id = DEFAULT, paused_by = coalesce(excluded.paused_by, mine.paused_by),
        reason = coalesce(excluded.reason, mine.reason), stop = excluded.stop
    RETURNING id, kind, name, paused_at, paused_by, reason, stop)
SELECT id, kind, name, paused_at, paused_by, reason, stop,
       CASE WHEN :notify::boolean THEN pg_notify(outlast_channel_v1(), 'pause')::text END
FROM paused

-- name: resume
-- Workers claim the paused jobs again once they have read that the pause is over; a worker that has not read it yet
-- only claims them later.
WITH resumed AS (
    DELETE FROM outlast_pauses WHERE kind = :kind AND name = :name
    RETURNING id, kind, name, paused_at, paused_by, reason, stop)
SELECT id, kind, name, paused_at, paused_by, reason, stop,
       CASE WHEN :notify::boolean THEN pg_notify(outlast_channel_v1(), 'pause')::text END
FROM resumed

-- name: acknowledge_pauses
-- Written after the worker has released the jobs that had not begun, so that readers may rely on it. A plain update,
-- which does not conflict with the KEY SHARE of an exchange. The registration guards another worker's row, if the id
-- was issued again. Permits that keep a place are looked at again, since the place may be kept for jobs that are paused
-- (outlast_fold_v1): here and not with the pause, since a worker that does not know the pause yet may keep one.
WITH noted AS (
    INSERT INTO outlast_notices (permit)
    SELECT p.id FROM outlast_permits p
    WHERE p.kept_for IS NOT NULL AND p.kept_until > date_part('epoch', statement_timestamp()))
UPDATE outlast_workers SET acknowledged_pauses = $2 WHERE id = $1 AND registration IS NOT DISTINCT FROM $3
