-- A connection: how it is set, and the brackets of its transactions.

-- name: wal
-- What each new connection is set to.
--
-- WAL: readers (a heartbeat, an inspector) never wait for a writer. FULL: a commit is on the
-- disk before it is answered; with NORMAL a power cut could take an accepted job away. OFF, set behind
-- FULL, waits for no disk: for stores that are deleted at the end of a test.
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

-- name: begin
-- The brackets of every write.
--
-- BEGIN IMMEDIATE takes the one write lock of the file before anything is read, so what a
-- transaction has read stays true until its COMMIT: a claim, a reap and a late worker come one
-- after the other, never between two statements of one of them.
BEGIN IMMEDIATE
-- name: commit
COMMIT
-- name: rollback
ROLLBACK
-- name: mark
SAVEPOINT outlast_mark
-- name: undo_to_mark
ROLLBACK TO outlast_mark
-- name: forget_mark
RELEASE outlast_mark
-- name: snapshot
-- Several reads that see one state of the file: they wait for no other, and no other for them.
BEGIN
