-- Schedules: statements that all stores share (statements.py). Reads only.

-- name: show
-- Schedules by name, after :after, or the one of that name.
SELECT s.name, s.call, s.spec, s.overlap, s.catch_up, s.grace, s.origin, s.version, s.revision, s.paused,
       s.declared, s.declared_at, s.since, s.next_tick, s.last_tick, s.last_job, s.fired, s.skipped, s.missed,
       s.last_skip, s.last_skip_job
FROM outlast_schedules s
WHERE s.name > :after AND (:name::text IS NULL OR s.name = :name) AND s.origin <> 'deleted' ORDER BY s.name LIMIT :limit
