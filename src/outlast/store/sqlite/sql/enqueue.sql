-- Store jobs. These statements also run inside a caller's own transaction: each begins with its verb (sqlite3's
-- implicit BEGIN looks for it) and returns no text, and none of them begins or commits a transaction.
--
-- One unfinished job holds a key, by the unique index. Against a concurrent claim, reap or late worker: the holder may
-- change state, but only in a transaction before or after this one.
--
-- {shared}, {own}: the columns of a new job, as listed in new_rows.py; {:shared}, {:own}: their values.

-- name: insert
-- Store jobs that differ only in their arguments. These come as one JSON object, keyed by each job's index in the call,
-- or as an array of all of them. The index is added to the first id and position; a NULL position, for jobs that are
-- not due, stays NULL. A statement for each row would cost four times as much.
INSERT INTO outlast_jobs (id, position, {shared}, tenant, run_at, enqueued_at, expires_at, args)
SELECT :id + CAST(key AS INTEGER), :position + CAST(key AS INTEGER), {:shared}, :tenant, :run_at, :enqueued_at,
       :expires_at, value
FROM json_each(:args)
-- name: insert_limited
-- As "insert", for jobs that wait in streams; they may also differ in their streams, their needs and their tenants.
INSERT INTO outlast_jobs
    (id, position, {shared}, run_at, enqueued_at, expires_at, args, tenant, stream, needs, aged)
SELECT :id + CAST(key AS INTEGER), :position + CAST(key AS INTEGER), {:shared}, :run_at, :enqueued_at, :expires_at,
       json_extract(value, '$[0]'), json_extract(value, '$[1]'),
       json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(:args)
-- name: insert_unless_key_taken
INSERT INTO outlast_jobs (id, position, {shared}, {own}, run_at, enqueued_at, expires_at, aged)
VALUES (:id, :position, {:shared}, {:own}, :run_at, :enqueued_at, :expires_at, :aged)
ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
-- name: arrive
-- Open the streams of jobs that were just stored, and make the missing ones: [id, task, queue, rank, needs, tenant
-- (NULL: several), whether a job is due]. A stream of jobs that are not due yet stays idle until one is. A claim marks
-- a stream idle only under the write lock, when it sees none of its jobs: either it has seen these jobs, or they open
-- it again here. A new stream's turn is behind streams that have started a job, and before all later starts.
INSERT INTO outlast_streams (id, task, queue, rank, needs, tenant, turn, idle, touched_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       (SELECT value FROM outlast_sequences WHERE name = 'turn'), NOT json_extract(value, '$[6]'), :now
FROM json_each(:streams) WHERE true
ON CONFLICT (id) DO UPDATE
SET idle = 0, blocked = nullif(blocked, -2), touched_at = iif(idle, :now, touched_at),
    tenant = iif(idle OR tenant = excluded.tenant, excluded.tenant, NULL)
WHERE (idle = 1 OR blocked = -2 OR tenant IS NOT NULL AND tenant IS NOT excluded.tenant) AND excluded.idle = 0
-- name: label
INSERT INTO outlast_labels (job_id, label) VALUES (?, ?)
-- name: free_keys
UPDATE outlast_jobs SET state = 'cancelled', ended_at = :now, position = NULL
WHERE key IN (SELECT value FROM json_each(:keys)) AND key IS NOT NULL AND ended_at IS NULL
  AND state IN ('queued', 'blocked') AND expires_at <= :now
RETURNING CASE WHEN keep <= 0 AND NOT awaited THEN id END
-- name: unfinished
-- Read the job that has a key, with whether it has begun, and whether it yields to a later enqueue. The task is read as
-- bytes, as below.
SELECT id + 0, CAST(task AS BLOB), attempt_count > 0, enqueued_at, position, state = 'blocked',
       instr(policy, '"yields_key":true') > 0 FROM outlast_jobs
WHERE key = ? AND key IS NOT NULL AND ended_at IS NULL
-- name: replace
-- Give a job that has not begun new arguments, a new time, and the place where these wait. It keeps its id and, if it
-- is still due, its position.
UPDATE outlast_jobs SET args = :args, run_at = :run_at, aged = :aged, position = :position,
    queue = :queue, priority = :priority, tenant = :tenant, stream = :stream, needs = :needs
WHERE id = :id
-- name: drop_key
UPDATE outlast_jobs SET key = NULL WHERE id = ?
-- name: window
-- Read the job of a key and a task in the present window (outlast_take_window_v1); under the write lock.
SELECT w.job_id + 0, coalesce(j.args = :args, 1)
FROM outlast_windows AS w LEFT JOIN outlast_jobs AS j ON j.id = w.job_id
WHERE w.key = :key AND w.task = :task AND w.until > :now AND w.until <= :until
-- name: fill_window
INSERT INTO outlast_windows (key, task, job_id, until) VALUES (:key, :task, :job_id, :until)
ON CONFLICT (key, task) DO UPDATE SET job_id = excluded.job_id, until = excluded.until
-- name: key_holder
-- The task is read as bytes: a caller's connection may convert texts in its own way.
SELECT id + 0, CAST(task AS BLOB), args = :args FROM outlast_jobs
WHERE key = :key AND ended_at IS NULL
