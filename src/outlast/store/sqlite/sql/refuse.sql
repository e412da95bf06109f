-- What became of a fenced write that found no row, and the record of refusals. Runs in the
-- transaction of that write, so nothing has changed since it found no row.

-- name: completed_by
SELECT 1 FROM outlast_jobs WHERE id = ? AND token = ? AND state = 'completed'
-- name: is_there
SELECT 1 FROM outlast_jobs WHERE id = ?
-- name: closed_as
SELECT 1 FROM outlast_attempts WHERE token = ? AND job_id = ? AND outcome = ?
-- name: ended_at
SELECT coalesce(
    (SELECT ended_at FROM outlast_attempts WHERE token = :token AND job_id = :job_id),
    (SELECT ended_at FROM outlast_jobs WHERE id = :job_id AND token = :token))
-- name: record
INSERT INTO outlast_refusals (job_id, token, verb, at, late_by) VALUES (?, ?, ?, ?, ?)
-- name: forget_oldest
DELETE FROM outlast_refusals WHERE id <= (SELECT max(id) FROM outlast_refusals) - ?
