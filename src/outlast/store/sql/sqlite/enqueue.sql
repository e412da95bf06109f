-- Store jobs. Must also run inside a caller's own transaction: each statement begins with its
-- verb (sqlite3's implicit BEGIN looks for it), returns no text, and nothing begins or commits.
--
-- A key is held by one unfinished job, by the unique index: beside a concurrent claim, reap or
-- late worker the holder may change state, but only in a transaction before or after this one.

-- name: insert
INSERT INTO outlast_jobs
    (id, task, queue, priority, position, run_at, enqueued_at, args, policy, timeout, key, tenant)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
-- name: insert_unless_key_taken
INSERT INTO outlast_jobs
    (id, task, queue, priority, position, run_at, enqueued_at, args, policy, timeout, key, tenant)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
-- name: key_holder
SELECT id + 0 FROM outlast_jobs WHERE key = ? AND ended_at IS NULL
