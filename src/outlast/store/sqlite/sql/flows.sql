-- Find flows, for people and screens, as on PostgreSQL. Reads only.

-- name: links
SELECT d.job_id, d.upstream_id, d.wants, d.state, d.place
FROM json_each(:ids) AS e CROSS JOIN outlast_dependencies AS d ON d.job_id = e.value
UNION ALL
SELECT d.job_id, d.upstream_id, d.wants, d.state, d.place
FROM json_each(:ids) AS e CROSS JOIN outlast_dependencies AS d INDEXED BY outlast_dependencies_upstream
    ON d.upstream_id = e.value
LIMIT :most
-- name: members
SELECT j.id, j.task, j.state, j.tenant, j.enqueued_at,
       CASE WHEN j.state <> 'queued' THEN j.state
            WHEN j.solo > 0 THEN 'suspect'
            WHEN j.position IS NOT NULL OR j.run_at <= :now THEN 'queued'
            WHEN j.attempt_count > 0 AND EXISTS (
                SELECT 1 FROM outlast_waits AS v WHERE v.job_id = j.id AND v.token = j.token AND NOT v.woken) THEN 'waiting'
            WHEN j.failures > 0 OR j.losses > 0 THEN 'retrying'
            ELSE 'scheduled' END AS phase,
       j.state = 'cancelled' AND NOT j.cancel_requested AND j.attempt_count = 0 AND j.key IS NULL
           AND (j.expires_at IS NULL OR j.expires_at > :now) AS may_return
FROM json_each(:ids) AS e CROSS JOIN outlast_jobs AS j WHERE j.id = e.value
-- name: waited
WITH RECURSIVE w (id, n) AS (
    SELECT (SELECT max(d.job_id) FROM outlast_dependencies AS d WHERE d.job_id < :before), 1
    UNION ALL
    SELECT (SELECT max(d.job_id) FROM outlast_dependencies AS d WHERE d.job_id < w.id), w.n + 1
    FROM w WHERE w.id IS NOT NULL AND w.n < :most)
SELECT id FROM w WHERE id IS NOT NULL
