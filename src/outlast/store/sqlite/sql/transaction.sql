-- The brackets of every write.
--
-- BEGIN IMMEDIATE takes the one write lock of the file before anything is read, so what a
-- transaction has read stays true until its COMMIT: a claim, a reap and a late worker come one
-- after the other, never between two statements of one of them.

-- name: begin
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
