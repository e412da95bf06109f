-- Pauses: statements that all stores share (statements.py). Reads only.

-- name: pauses
-- All pauses, by id.
SELECT id, kind, name, paused_at, paused_by, reason, stop
FROM outlast_pauses ORDER BY id
