-- Schedules, under the write lock. "stands" guards a firing, as `fire` of postgres/sql/schedules.sql argues: another
-- firing, an edit, a resume, and a delete followed by a put all change next_tick or revision. since only rises, and
-- stays in the row of a deleted schedule.

-- name: look
-- Texts are read as bytes: a caller's connection may convert texts in its own way.
SELECT CAST(origin AS BLOB), CAST(version AS BLOB), CAST(versions AS BLOB), CAST(spec AS BLOB),
       CAST(owed AS BLOB), since, next_tick, declared, declared_at
FROM outlast_schedules WHERE name = ?
-- name: create
INSERT INTO outlast_schedules (name, call, spec, overlap, catch_up, grace, origin, version, revision,
                               declared_at, since, next_tick)
VALUES (:name, :call, :spec, :overlap, :catch_up, :grace, :origin, :version, :revision, :declared_at,
        :since, :next_tick)
-- name: change
UPDATE outlast_schedules
SET call = :call, spec = :spec, overlap = :overlap, catch_up = :catch_up, grace = :grace,
    origin = :origin, version = :version, versions = :versions, revision = :revision, declared = 1,
    declared_at = :declared_at, since = :since, next_tick = :next_tick, owed = :owed
WHERE name = :name
-- name: forget
DELETE FROM outlast_schedules WHERE name = ?
-- name: renew
UPDATE outlast_schedules SET declared = 1, declared_at = ? WHERE name = ?
-- name: lock
SELECT paused, since, CAST(owed AS TEXT) AS owed, CAST(spec AS TEXT) AS spec, :now AS now
FROM outlast_schedules WHERE name = :name AND origin <> 'deleted'
-- name: due
SELECT {due_schedule}
FROM outlast_schedules INDEXED BY outlast_schedules_next
WHERE paused = 0 AND declared = 1 AND next_tick IS NOT NULL AND next_tick <= :now
  AND (next_tick, name) > (:tick, :name)
ORDER BY next_tick, name LIMIT :limit
-- name: first_after
SELECT next_tick FROM outlast_schedules INDEXED BY outlast_schedules_next
WHERE paused = 0 AND declared = 1 AND next_tick IS NOT NULL AND next_tick > ?
ORDER BY next_tick LIMIT 1
-- name: stands
SELECT 1 FROM outlast_schedules WHERE name = ? AND next_tick = ? AND revision = ? AND paused = 0
-- name: fired
UPDATE outlast_schedules
SET since = max(since, :since), next_tick = :then, owed = :owed, last_tick = coalesce(:last_tick, last_tick),
    last_job = coalesce(:last_job, last_job), fired = fired + :fired, skipped = skipped + :skipped,
    missed = missed + :missed,
    last_skip = coalesce(:last_skip, last_skip),
    last_skip_job = CASE WHEN :last_skip IS NULL THEN last_skip_job ELSE :in_the_way END
WHERE name = :name
-- name: undeclared
UPDATE outlast_schedules SET declared = 0
WHERE name = :name AND declared = 1 AND abs(declared_at - :now) > :fresh
