-- What each new connection is set to.
--
-- WAL: readers (a heartbeat, an inspector) never wait for a writer. FULL: a commit is on the
-- disk before it is answered; with NORMAL a power cut could take an accepted job away. OFF, set behind
-- FULL, waits for no disk: for stores that are deleted at the end of a test.

-- name: wal
PRAGMA journal_mode = WAL
-- name: full
PRAGMA synchronous = FULL
-- name: off
PRAGMA synchronous = OFF
-- name: log
-- Bytes. A log that has grown beside a reader's long transaction is cut to this by the first commit
-- that starts it again; otherwise it would keep the space forever.
PRAGMA journal_size_limit = 67108864
-- name: cache
PRAGMA cache_size = -16000
-- name: temporary
PRAGMA temp_store = MEMORY
-- name: data_version
PRAGMA data_version
