-- What people do: the record of it, and bulk actions step by step.

-- name: note
-- Note who does what, in the transaction of the act: either both are committed or neither. A bulk action begins as
-- running ($8) and with where it stands. The newest $13 of each actor are kept, and what is under way, so that no
-- actor pushes out the records of others; of two that forget at
-- once each passes over what the other has locked.
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
-- second waits here for the commit of the first, reads where it stands by then (READ COMMITTED checks the
-- row again), and changes nothing where that is not what it came for, or where it was stopped. So no
-- job is acted on by two steps, and a step whose process dies is taken again as a whole. The row of the
-- action is locked before those of jobs, always: two steps of one action never wait for each other.
SELECT counts, state, before_id FROM outlast_actions WHERE id = $1 FOR UPDATE

-- name: move
-- Say where an action stands, in the transaction that has locked it (`lock`).
UPDATE outlast_actions SET counts = $2, state = $3, before_id = $4, moved_at = clock_timestamp() WHERE id = $1

-- name: stop
-- Stop an action that is under way. Waits for a step of it that is under way; the next one finds it stopped.
UPDATE outlast_actions SET state = 'stopped', moved_at = clock_timestamp() WHERE id = $1 AND state = 'running'
RETURNING id

-- name: lock_current
-- Lock those of these jobs ($1) whose last token is the one that the caller has seen ($2, at the same place; 0: none
-- was drawn, NULL: any will do), in the order of their ids, as outlast_cancel_v1 and its like do. A claim passes over
-- locked rows, so until the commit none of them begins another attempt. One by one, each by its key: a
-- join was seen to read the whole table where its statistics were old.
SELECT l.id FROM (SELECT u.id, u.token FROM unnest($1::bigint[], $2::bigint[]) AS u (id, token) ORDER BY u.id) s
CROSS JOIN LATERAL (
    SELECT j.id FROM outlast_jobs j
    WHERE j.id = s.id AND (s.token IS NULL OR coalesce(j.token, 0) = s.token) FOR NO KEY UPDATE) l

-- name: show
-- What people did, newest first, before :before_id, of one job (:job_id) or all; the table is bounded. Reads only.
SELECT id, extract(epoch FROM at)::float8 AS at, actor, verb, target, job_id, filter, reason, counts, state, expected,
       up_to_id, as_of, before_id, extract(epoch FROM moved_at)::float8 AS moved_at
FROM outlast_actions WHERE id < :before_id AND (:job_id::bigint IS NULL OR job_id = :job_id) ORDER BY id DESC LIMIT :limit::integer

-- name: show_running
-- Actions that are under way, the oldest first. Reads only.
SELECT id, extract(epoch FROM at)::float8 AS at, actor, verb, target, job_id, filter, reason, counts, state, expected,
       up_to_id, as_of, before_id, extract(epoch FROM moved_at)::float8 AS moved_at
FROM outlast_actions WHERE state = 'running' ORDER BY id LIMIT :limit::integer
