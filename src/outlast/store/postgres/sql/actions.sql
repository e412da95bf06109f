-- Actions of people: their records, and bulk actions step by step.

-- name: note
-- Note who does what, in the transaction of the act: either both are committed or neither. A bulk action begins as
-- running ($8) and with where it stands. For each actor the newest $13 records are kept, and those under way, so that
-- no actor pushes out the records of others. If two calls delete old records at once, each skips the rows that the
-- other has locked.
WITH noted AS (
    INSERT INTO outlast_actions (at, actor, verb, target, job_id, filter, reason, counts, state, expected,
                                 up_to_id, as_of, before_id, moved_at)
    VALUES (clock_timestamp(), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, clock_timestamp())
    RETURNING id
), old AS MATERIALIZED (
    SELECT a.id FROM outlast_actions a
    WHERE a.actor = $1 AND a.state <> 'running'
      AND a.id <= (SELECT b.id FROM outlast_actions b WHERE b.actor = $1
                   ORDER BY b.id DESC OFFSET $13::bigint - 1 LIMIT 1)
    ORDER BY a.id LIMIT 1000 FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM outlast_actions a USING old o WHERE a.id = o.id)
SELECT id FROM noted

-- name: lock
-- Lock an action before its next step, or before more is counted. Two processes may take the same step at once: the
-- second waits here for the commit of the first, then reads where the action stands (READ COMMITTED re-checks the
-- row). It changes nothing if that is not the step it came for, or if the action was stopped. So no two steps act on
-- the same job, and a step whose process dies is taken again as a whole. The row of the action is always locked
-- before rows of jobs, so two steps of one action never deadlock.
SELECT counts, state, before_id FROM outlast_actions WHERE id = $1 FOR UPDATE

-- name: move
-- Note where an action stands, in the transaction that has locked it (`lock`).
UPDATE outlast_actions SET counts = $2, state = $3, before_id = $4, moved_at = clock_timestamp() WHERE id = $1

-- name: stop
-- Stop an action that is under way. This waits for a step that is just being taken; the next step finds it stopped.
UPDATE outlast_actions SET state = 'stopped', moved_at = clock_timestamp() WHERE id = $1 AND state = 'running'
RETURNING id

-- name: lock_current
-- Lock those of these jobs ($1) whose last token is the one that the caller has seen ($2, at the same index; 0: none
-- was drawn, NULL: any token matches), in the order of their ids, as outlast_cancel_v1 and similar functions do. A
-- claim skips locked rows, so none of these jobs begins another attempt before the commit. Jobs are looked up one by
-- one by primary key: a join was seen to read the whole table when its statistics were old.
SELECT l.id FROM (SELECT u.id, u.token FROM unnest($1::bigint[], $2::bigint[]) AS u (id, token) ORDER BY u.id) s
CROSS JOIN LATERAL (
    SELECT j.id FROM outlast_jobs j
    WHERE j.id = s.id AND (s.token IS NULL OR coalesce(j.token, 0) = s.token) FOR NO KEY UPDATE) l
