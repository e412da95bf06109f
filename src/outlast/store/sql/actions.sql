-- Acts of people: statements that all stores share (statements.py). Reads only.

-- name: show
-- Actions of people, newest first, before :before_id, of one job (:job_id) or of all; the table is bounded.
SELECT id, at, actor, verb, target, job_id, filter, reason, counts, state, expected,
       up_to_id, as_of, before_id, moved_at
FROM outlast_actions WHERE id < :before_id AND (:job_id::bigint IS NULL OR job_id = :job_id)
ORDER BY id DESC LIMIT :limit::integer
-- name: show_running
-- Actions that are under way, the oldest first.
SELECT id, at, actor, verb, target, job_id, filter, reason, counts, state, expected,
       up_to_id, as_of, before_id, moved_at
FROM outlast_actions WHERE state = 'running' ORDER BY id LIMIT :limit::integer
