-- The incarnation of the database, and from where the newest workers that have claimed anything have
-- read the line, be they alive or not: a client that knows nothing would walk over all that is dead.
SELECT i.id::text AS incarnation, w.lanes
FROM outlast_incarnation i
LEFT JOIN LATERAL (
    SELECT lanes FROM outlast_workers WHERE lanes IS NOT NULL ORDER BY id DESC LIMIT 8) w ON true
WHERE i.home = outlast_home_v1()
