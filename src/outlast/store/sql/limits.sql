-- Limits, for people: statements that all stores share (statements.py). Statements that write run in the transaction of
-- an act, for which store/acts.py argues.

-- name: limits
-- Limits by name, :most at most, or the one of that name, with how many permits each has, counted by index up to :keys
-- (with an ORDER BY the plan would walk over all permits by id).
SELECT l.name, l.declared, l.own, l.running, l.spacing, l.burst, l.per, l.held_until, l.recounted_at,
       (SELECT count(*) FROM (SELECT 1 FROM outlast_permits p /*! INDEXED BY outlast_permits_name */
                              WHERE p.name = l.name LIMIT :keys) c) AS permits
FROM outlast_limits l WHERE :name::text IS NULL OR l.name = :name ORDER BY l.name LIMIT :most
-- name: holds
-- Until when these permits are held.
SELECT id, held_until FROM outlast_permits WHERE id {ids}
-- name: blocking
-- The permits that block streams, by id, :most at most: from one to the next by index, one probe each.
WITH RECURSIVE b (permit) AS (
    SELECT (SELECT s.blocked FROM outlast_streams s /*! INDEXED BY outlast_streams_blocked */
            WHERE s.blocked >= 0 ORDER BY s.blocked LIMIT 1)
    UNION ALL
    SELECT (SELECT s.blocked FROM outlast_streams s /*! INDEXED BY outlast_streams_blocked */
            WHERE s.blocked > b.permit ORDER BY s.blocked LIMIT 1)
    FROM b WHERE b.permit IS NOT NULL)
SELECT b.permit AS id, (SELECT p.name FROM outlast_permits p WHERE p.id = b.permit) AS name
FROM b WHERE b.permit IS NOT NULL LIMIT :most
-- name: throttled_by
-- The job that holds a permit until then, since it has found the limit exhausted: it waits to run again at that time.
-- Found by index, within the rounding of times.
SELECT j.id FROM outlast_jobs j /*! INDEXED BY outlast_jobs_run_at */
WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
  AND j.run_at BETWEEN :until::float8 - 0.001 AND :until + 0.001
  AND strpos(j.needs, '[' || :permit::bigint || ',') > 0
ORDER BY j.run_at LIMIT 1
-- name: set_key
-- Give one key of a limit a cap of its own; NULL: remove it. The transaction has the lock of changes, as in the next
-- one.
UPDATE outlast_permits SET own_running = :running WHERE id = :permit
-- name: reset_keys
-- Remove the caps of all keys of a limit.
UPDATE outlast_permits SET own_running = NULL WHERE name = :name AND own_running IS NOT NULL
