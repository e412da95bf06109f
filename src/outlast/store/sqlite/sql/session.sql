-- Set up a connection, and begin and end its transactions.

-- name: wal
-- Settings of each new connection.
--
-- WAL: readers (a heartbeat, an inspector) never wait for a writer. FULL: a commit is on the disk before it is
-- answered; with NORMAL a power cut could lose an accepted job. OFF, set after FULL, waits for no disk: for stores
-- that are deleted at the end of a test.
PRAGMA journal_mode = WAL
-- name: full
PRAGMA synchronous = FULL
-- name: off
PRAGMA synchronous = OFF
-- name: log
-- In bytes. A WAL file that has grown during a reader's long transaction is cut to this size by the first commit that
-- starts it again; otherwise it would keep the space for good.
PRAGMA journal_size_limit = 67108864
-- name: cache
PRAGMA cache_size = -16000
-- name: temporary
PRAGMA temp_store = MEMORY

-- name: begin
-- Begin and end every write.
--
-- BEGIN IMMEDIATE takes the one write lock of the file before anything is read, so what a transaction has read stays
-- true until its COMMIT: a claim, a reap and a late worker come one after the other, never between two statements of
-- another.
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
-- Begin several reads that see one state of the file. They wait for no writer, and no writer waits for them.
BEGIN
