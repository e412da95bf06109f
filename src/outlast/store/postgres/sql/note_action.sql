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
