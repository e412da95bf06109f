-- Bad ends, for people: statements that all stores share (statements.py). Reads only.

-- name: dead_groups
-- Groups of the :rows newest dead jobs, the group with the latest death first, from the index of dead jobs alone,
-- which holds all these columns.
SELECT fingerprint, count(*) AS number, max(id) AS newest,
       min(ended_at) AS first_at, max(ended_at) AS last_at,
       (sum(count(*)) OVER ())::bigint AS looked_at
FROM (SELECT id, fingerprint, ended_at FROM outlast_jobs /*! INDEXED BY outlast_jobs_dead */
      WHERE state = 'dead' ORDER BY id DESC LIMIT :rows) d
GROUP BY fingerprint ORDER BY max(ended_at) DESC, max(id) DESC LIMIT :groups
-- name: dead_groups_among
-- As `dead_groups`, of the jobs that pass the filters; a filter that is NULL lets every job pass. Reads the rows of
-- the :rows newest dead jobs.
WITH looked AS MATERIALIZED (
    SELECT id, fingerprint, ended_at, {columns} FROM outlast_jobs /*! INDEXED BY outlast_jobs_dead */
    WHERE state = 'dead' ORDER BY id DESC LIMIT :rows)
SELECT fingerprint, count(*) AS number, max(id) AS newest,
       min(ended_at) AS first_at, max(ended_at) AS last_at,
       (SELECT count(*) FROM looked) AS looked_at
FROM looked
WHERE {chosen}
GROUP BY fingerprint ORDER BY max(ended_at) DESC, max(id) DESC LIMIT :groups
-- name: ended_floor
-- The least token among the :rows newest attempts with tokens below :before, how many those are, and when the
-- first of them ended.
SELECT min(token) AS token, count(*) AS number, min(ended_at) AS back_to
FROM (SELECT token, ended_at FROM outlast_attempts
      WHERE token < :before ORDER BY token DESC LIMIT :rows) a
-- name: suspects
-- The jobs of the newest shared deaths, at most :rows, by the index on incidents.
SELECT incident, id AS job_id, task, queue, state, solo, losses, tenant
FROM outlast_jobs /*! INDEXED BY outlast_jobs_incident */ WHERE incident IS NOT NULL ORDER BY incident DESC LIMIT :rows
-- name: causes
-- Count the outcomes of the :rows newest attempts (by token): of one tenant's jobs, or of all (NULL).
SELECT outcome, count(*) AS number, count(*) FILTER (WHERE ended_at > {now} - 3600) AS hour, max(ended_at) AS last_at
FROM (SELECT job_id, outcome, ended_at FROM outlast_attempts ORDER BY token DESC LIMIT :rows) a
WHERE :tenant::text IS NULL OR (SELECT j.tenant FROM outlast_jobs j WHERE j.id = a.job_id) = :tenant
GROUP BY outcome ORDER BY 2 DESC, 1
-- name: last_ends
-- The last closed attempt of each of these jobs that has one, found by the index on (job_id, number), since numbers
-- rise with tokens. :whole: include large columns.
SELECT {a.attempt}, CASE WHEN :whole::boolean THEN a.message ELSE substr(a.message, 1, 2000) END AS message,
       CASE WHEN :whole THEN a.progress END AS progress, CASE WHEN :whole THEN a.crash END AS crash
FROM outlast_jobs j JOIN outlast_attempts a ON a.token = (
    SELECT o.token FROM outlast_attempts o WHERE o.job_id = j.id ORDER BY o.number DESC, o.token DESC LIMIT 1)
WHERE j.id {ids}
