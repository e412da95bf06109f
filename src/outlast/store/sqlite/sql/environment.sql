-- How a file and a connection are set.

-- name: journal_mode
PRAGMA journal_mode
-- name: synchronous
PRAGMA synchronous
