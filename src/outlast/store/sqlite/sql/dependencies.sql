-- Store the dependencies of blocked jobs, and resolve them once the upstream jobs have ended. All of this runs under
-- the write lock: an enqueue sees whether an upstream job has ended, and marks one that has not (awaited), so that its
-- end leaves a notice in its own commit (the trigger outlast_jobs_awaited). So no end is missed; and a dependency
-- changes its state once for each end or requeue of its upstream job, so none is counted twice.
-- postgres/sql/dependencies.sql says what the statements mean.

-- name: upstream
SELECT id, keep FROM outlast_jobs WHERE id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: block
UPDATE outlast_jobs SET state = 'blocked', position = NULL WHERE id IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: await
UPDATE outlast_jobs SET awaited = 1 WHERE id IN (SELECT e.value FROM json_each(:ids) AS e) AND awaited = 0
-- name: depend
INSERT INTO outlast_dependencies (job_id, upstream_id, wants, place, state) VALUES (?, ?, ?, ?, 1)
-- name: note_ended
INSERT INTO outlast_upstream_notices (job_id)
SELECT j.id FROM json_each(:ids) AS e CROSS JOIN outlast_jobs AS j WHERE j.id = e.value AND j.ended_at IS NOT NULL

-- name: notices
SELECT id, job_id, CAST(event AS TEXT) FROM outlast_upstream_notices ORDER BY id LIMIT :most
-- name: pairs
-- Read the dependencies that change, at most :most: on jobs that have ended (or no longer exist), and failed ones that
-- a requeue, a completion after it, or a skip takes back. [place, job, wants, the upstream job's state or NULL, whether
-- it has ended, whether the job waits, whether the dependency has failed]. A job waits if it is blocked, or was
-- cancelled because of its upstream jobs.
SELECT d.place, d.job_id, d.wants, j.state, j.id IS NULL OR j.ended_at IS NOT NULL,
       g.state = 'blocked' OR (g.state = 'cancelled' AND NOT g.cancel_requested), d.state = 3
FROM json_each(:ids) AS e
LEFT JOIN outlast_jobs AS j ON j.id = e.value
CROSS JOIN outlast_dependencies AS d INDEXED BY outlast_dependencies_upstream
    ON d.upstream_id = e.value
    AND d.state IN (iif(j.id IS NULL OR j.ended_at IS NOT NULL, 1, 3), iif(j.state = 'completed', 3, -1))
    AND (d.state = iif(j.id IS NULL OR j.ended_at IS NOT NULL, 1, 3) OR d.wants = 0)
CROSS JOIN outlast_jobs AS g ON g.id = d.job_id
LIMIT :most
-- name: change
UPDATE outlast_dependencies SET state = ? WHERE job_id = ? AND place = ?
-- name: left
-- Return for each of these jobs whether any of its dependencies has failed, and whether any other is left.
SELECT e.value,
       EXISTS (SELECT 1 FROM outlast_dependencies AS d INDEXED BY outlast_dependencies_left
               WHERE d.job_id = e.value AND d.state <> 2 AND d.state = 3),
       EXISTS (SELECT 1 FROM outlast_dependencies AS d INDEXED BY outlast_dependencies_left
               WHERE d.job_id = e.value AND d.state <> 2 AND d.state < 2)
FROM json_each(:ids) AS e
-- name: fail
UPDATE outlast_jobs SET state = 'cancelled', ended_at = :now
WHERE id IN (SELECT e.value FROM json_each(:ids) AS e) AND state = 'blocked'
RETURNING CASE WHEN keep <= 0 AND NOT awaited THEN id END
-- name: open
-- Positions are drawn one by one, in the order of the ids; a job that is due later gets none.
UPDATE outlast_jobs
SET state = 'queued', position = CASE WHEN run_at <= :now THEN :position + e.key END, run_at = max(run_at, :now)
FROM json_each(:ids) AS e WHERE outlast_jobs.id = e.value AND outlast_jobs.state = 'blocked'
-- name: wait_again
UPDATE outlast_jobs SET state = 'blocked', ended_at = NULL
WHERE id IN (SELECT e.value FROM json_each(:ids) AS e) AND state = 'cancelled' AND NOT cancel_requested
  AND key IS NULL AND (expires_at IS NULL OR expires_at > :now)
-- name: end_children
UPDATE outlast_jobs SET state = 'cancelled', position = NULL, ended_at = :now
WHERE id IN (SELECT c.id FROM json_each(:ids) AS e
             CROSS JOIN outlast_jobs AS p ON p.id = e.value AND p.state IN ('dead', 'cancelled')
             CROSS JOIN outlast_dependencies AS d ON d.job_id = p.id AND d.place < 0
             CROSS JOIN outlast_jobs AS c ON c.id = d.upstream_id
             WHERE c.attempt_count = 0 AND c.key IS NULL AND c.state IN ('queued', 'blocked') LIMIT :most)
-- name: revive_children
UPDATE outlast_jobs SET state = 'blocked', ended_at = NULL
WHERE id IN (SELECT c.id FROM json_each(:ids) AS e
             CROSS JOIN outlast_jobs AS p ON p.id = e.value AND p.ended_at IS NULL
             CROSS JOIN outlast_dependencies AS d ON d.job_id = p.id AND d.place < 0
             CROSS JOIN outlast_jobs AS c ON c.id = d.upstream_id
             WHERE c.attempt_count = 0 AND c.key IS NULL AND c.state = 'cancelled' AND NOT c.cancel_requested
               AND (c.expires_at IS NULL OR c.expires_at > :now)
               AND NOT EXISTS (SELECT 1 FROM outlast_dependencies AS f WHERE f.job_id = c.id AND f.state = 3) LIMIT :most)
RETURNING id
-- name: done
DELETE FROM outlast_upstream_notices WHERE id <= ?
-- name: adopt
INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
SELECT :job_id, e.value, 1, 2, -:first - e.key - 1 FROM json_each(:ids) AS e
-- name: watch
UPDATE outlast_dependencies SET state = iif(upstream_id IN (
    SELECT j.id FROM json_each(:ids) AS e CROSS JOIN outlast_jobs AS j WHERE j.id = e.value AND j.ended_at IS NULL), 1, 2)
WHERE job_id = :job_id AND place < 0
-- name: results
SELECT g.job_id, CASE WHEN NOT g.late THEN CAST(g.result AS TEXT) END, g.count, g.gone, g.late
FROM (SELECT f.*, f.n > 0 AND sum(f.bytes) OVER (ORDER BY f.n) > :most AS late
FROM (SELECT e.key AS n, d.job_id, d.place, j.result, coalesce(length(CAST(j.result AS BLOB)), 4) AS bytes,
             row_number() OVER (PARTITION BY d.job_id ORDER BY d.place) AS step, count(*) OVER (PARTITION BY d.job_id) AS count,
             min(iif(j.id IS NULL AND d.wants = 0, d.upstream_id, NULL)) OVER (PARTITION BY d.job_id) AS gone,
             sum(coalesce(length(CAST(j.result AS BLOB)), 4)) OVER (PARTITION BY d.job_id ORDER BY d.place) AS total
      FROM json_each(:ids) AS e CROSS JOIN outlast_dependencies AS d ON d.job_id = e.value AND d.place >= 0
      LEFT JOIN outlast_jobs AS j ON j.id = d.upstream_id) AS f) AS g
WHERE CASE WHEN g.late THEN g.step = 1 ELSE g.total <= :bytes END
ORDER BY g.job_id, g.place
