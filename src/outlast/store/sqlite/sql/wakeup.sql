-- Detect whether another connection has committed.

-- name: data_version
PRAGMA data_version
