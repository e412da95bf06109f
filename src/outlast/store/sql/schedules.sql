-- Schedules: statements that all stores share (statements.py). Statements that write run in the transaction of an act,
-- for which store/acts.py argues.

-- name: show
-- Schedules by name, after :after, or the one of that name.
SELECT {s.schedule} FROM outlast_schedules s
WHERE s.name > :after AND (:name::text IS NULL OR s.name = :name) AND s.origin <> 'deleted' ORDER BY s.name LIMIT :limit
-- name: pause
-- Pause a schedule that is locked.
UPDATE outlast_schedules SET paused = true WHERE name = :name
-- name: resume
-- Resume a schedule that is locked.
UPDATE outlast_schedules SET paused = false, revision = :revision, since = :since, next_tick = :since, owed = :owed
WHERE name = :name
-- name: delete
-- Delete a schedule that no active worker's code declares. A firing under way holds the row: the delete waits for its
-- commit, and then deletes the newest version if that is not declared. A firing decided before finds no next_tick.
-- Jobs that were stored stay. The row stays as a record of up to when ticks are accounted for, in case the name is
-- put again; prune.sql deletes it a week after declared_at, which is set to the time of this delete.
UPDATE outlast_schedules
SET origin = 'deleted', declared = false, declared_at = {now}, next_tick = NULL, call = '', spec = '',
    version = '', versions = '', owed = ''
WHERE name = :name AND origin <> 'deleted' AND (declared_at IS NULL OR abs(declared_at - {now}) > :fresh::float8)
RETURNING name
-- name: exists
-- Whether there is a schedule of this name.
SELECT 1 AS found FROM outlast_schedules WHERE name = :name AND origin <> 'deleted'
