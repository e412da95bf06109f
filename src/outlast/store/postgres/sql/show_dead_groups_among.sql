-- As show_dead_groups.sql, of those that pass: $3 to $5: queue, task and tenant; one that is not set is
-- NULL. Reads the rows of the $1 newest dead jobs. Reads only.
WITH looked AS MATERIALIZED (
    SELECT id, fingerprint, ended_at, queue, task, tenant FROM outlast_jobs
    WHERE state = 'dead' ORDER BY id DESC LIMIT $1)
SELECT fingerprint, count(*) AS number, max(id) AS newest,
       extract(epoch FROM min(ended_at))::float8 AS first_at,
       extract(epoch FROM max(ended_at))::float8 AS last_at,
       (SELECT count(*) FROM looked) AS looked_at
FROM looked
WHERE ($3::text IS NULL OR queue = $3) AND ($4::text IS NULL OR task = $4)
  AND ($5::text IS NULL OR tenant = $5)
GROUP BY fingerprint ORDER BY max(ended_at) DESC, max(id) DESC LIMIT $2
