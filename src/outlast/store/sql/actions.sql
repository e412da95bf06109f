-- Acts of people: statements that all stores share (statements.py). Statements that write run in the transaction of an
-- act, for which store/acts.py argues.

-- name: show
-- Actions of people, newest first, before :before_id, of one job (:job_id) or of all; the table is bounded.
SELECT {action}
FROM outlast_actions WHERE id < :before_id AND (:job_id::bigint IS NULL OR job_id = :job_id)
ORDER BY id DESC LIMIT :limit::integer
-- name: show_running
-- Actions that are under way, the oldest first.
SELECT {action}
FROM outlast_actions WHERE state = 'running' ORDER BY id LIMIT :limit::integer
-- name: drop_dependencies
-- Let jobs that are locked wait for nothing any longer.
UPDATE outlast_dependencies SET state = 2 WHERE job_id {ids} AND state <> 2
-- name: drop_steps
-- Delete the steps of jobs that are locked.
DELETE FROM outlast_steps WHERE job_id {ids}
-- name: drop_waits
-- Delete the waits of such jobs for events.
DELETE FROM outlast_waits WHERE job_id {ids}
-- name: drop_children
-- Let children of such jobs, which begin from scratch, be independent jobs from now on.
DELETE FROM outlast_dependencies WHERE job_id {ids} AND place < 0
-- name: note
-- Record who does what, in the transaction of the act: both are committed or neither. A bulk action begins as running,
-- with its progress.
INSERT INTO outlast_actions (at, actor, verb, target, job_id, filter, reason, counts, state, expected,
                             up_to_id, as_of, before_id, moved_at)
VALUES ({now}, :actor, :verb, :target, :job_id, :filter, :reason, :counts, :state, :expected,
        :up_to_id, :as_of, :before_id, {now})
RETURNING id
-- name: move
-- Record the progress of an action, in the transaction that has locked it (`standing`).
UPDATE outlast_actions
SET counts = :counts, state = :state, before_id = :before_id, moved_at = {now}
WHERE id = :id
-- name: stop
-- Stop an action that is under way. This waits for a step that is running; the next step finds the action stopped.
UPDATE outlast_actions SET state = 'stopped', moved_at = {now}
WHERE id = :id AND state = 'running' RETURNING id
