-- Actions of people, recorded in the transaction of the act: under the write lock, either both exist or neither.
--
-- A bulk action advances step by step. Two processes may take its next step at once: the second waits for the write
-- lock, then finds that before_id is no longer the value that it has read (statement `standing`), and changes
-- nothing. So no two steps act on the same job, and a step whose process dies is taken again as a whole. The same
-- check keeps a stopped action from going on.

-- name: note
INSERT INTO outlast_actions (at, actor, verb, target, job_id, filter, reason, counts, state, expected,
                             up_to_id, as_of, before_id, moved_at)
VALUES (:now, :actor, :verb, :target, :job_id, :filter, :reason, :counts, :state, :expected,
        :up_to_id, :as_of, :before_id, :now)
RETURNING id
-- name: forget_oldest
-- The newest records of each actor are kept, so that no actor pushes out the records of others; an action under way
-- is never deleted.
DELETE FROM outlast_actions
WHERE actor = :actor AND state <> 'running'
  AND id <= (SELECT id FROM outlast_actions WHERE actor = :actor ORDER BY id DESC LIMIT 1 OFFSET :kept)
-- name: standing
SELECT counts, state, before_id FROM outlast_actions WHERE id = ?
-- name: move
UPDATE outlast_actions
SET counts = :counts, state = :state, before_id = :before_id, moved_at = :now WHERE id = :id
-- name: stop
UPDATE outlast_actions SET state = 'stopped', moved_at = :now WHERE id = :id AND state = 'running'
-- name: token
SELECT coalesce(token, 0) FROM outlast_jobs WHERE id = ?
