-- Events, and the jobs that wait for them (tables/outlast_events.sql, outlast_wake_v1).

-- name: send
SELECT outlast_keep_event_v1($1, $2, $3) AS kept

-- name: find
-- Needs no lock: an event that is sent later finds the job waiting, or the next attempt finds the event
-- (outlast_wake_v1).
SELECT value FROM outlast_events WHERE name = $1
