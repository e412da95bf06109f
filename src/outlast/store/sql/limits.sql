-- Limits, for people: statements that all stores share (statements.py). Reads only.

-- name: limits
-- Limits by name, :most at most, or the one of that name, with how many permits each has, counted by index up to :keys
-- (with an ORDER BY the plan would walk over all permits by id).
SELECT l.name, l.declared, l.own, l.running, l.spacing, l.burst, l.per, l.held_until, l.recounted_at,
       (SELECT count(*) FROM (SELECT 1 FROM outlast_permits p /*! INDEXED BY outlast_permits_name */
                              WHERE p.name = l.name LIMIT :keys) c) AS permits
FROM outlast_limits l WHERE :name::text IS NULL OR l.name = :name ORDER BY l.name LIMIT :most
