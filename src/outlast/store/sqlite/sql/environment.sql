-- Settings of a file and a connection.

-- name: journal_mode
PRAGMA journal_mode
-- name: synchronous
PRAGMA synchronous
