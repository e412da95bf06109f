-- Note who does what, in the transaction of the act: either both are committed or neither. A bulk action begins as
-- running ($8) and with where it stands. The newest $13 are kept, and what is under way; of two that forget at
-- once each passes over what the other has locked.
WITH noted AS (
    INSERT INTO outlast_actions (at, actor, verb, target, job_id, filter, reason, counts, state, expected,
                                 up_to_id, as_of, before_id, moved_at)
    VALUES (clock_timestamp(), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, clock_timestamp())
    RETURNING id
), old AS MATERIALIZED (
    SELECT a.id FROM outlast_actions a
    WHERE a.id <= (SELECT id FROM noted) - $13::bigint AND a.state <> 'running'
    ORDER BY a.id LIMIT 1000 FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM outlast_actions a USING old o WHERE a.id = o.id)
SELECT id FROM noted
