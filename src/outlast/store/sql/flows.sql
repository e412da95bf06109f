-- Flows, for people and screens: jobs that wait for each other, and children with their parents. There is no row of a
-- flow: it is walked from one of its jobs, up and down, by the two indexes of outlast_dependencies. Statements that all
-- stores share (statements.py). Reads only.

-- name: blocked
-- The newest blocked jobs before one, by which flows are found.
SELECT j.id FROM outlast_jobs j /*! INDEXED BY outlast_jobs_blocked */
WHERE j.state = 'blocked' AND j.id < :before ORDER BY j.id DESC LIMIT :most
-- name: members
-- Read these jobs, with the columns that a flow shows. may_return: the job waits again if its upstream jobs are
-- requeued. phase: as phase_of in documents.py, as far as the job itself shows it, without workers, pauses and limits.
SELECT j.id, j.task, j.state, j.tenant, j.enqueued_at,
       CASE WHEN j.state <> 'queued' THEN j.state
            WHEN j.solo > 0 THEN 'suspect'
            WHEN j.position IS NOT NULL OR j.run_at <= {now} THEN 'queued'
            WHEN j.attempt_count > 0 AND EXISTS (
                SELECT 1 FROM outlast_waits v WHERE v.job_id = j.id AND v.token = j.token AND NOT v.woken) THEN 'waiting'
            WHEN j.failures > 0 OR j.losses > 0 THEN 'retrying'
            ELSE 'scheduled' END AS phase,
       j.state = 'cancelled' AND NOT j.cancel_requested AND j.attempt_count = 0 AND j.key IS NULL
           AND (j.expires_at IS NULL OR j.expires_at > {now}) AS may_return
FROM outlast_jobs j WHERE j.id {ids}
-- name: waited
-- The newest jobs before one that have waited for others, or have children, each by one probe of the primary key,
-- however many rows it has there.
WITH RECURSIVE w (id, n) AS (
    SELECT (SELECT max(d.job_id) FROM outlast_dependencies d WHERE d.job_id < :before::bigint), 1
    UNION ALL
    SELECT (SELECT max(d.job_id) FROM outlast_dependencies d WHERE d.job_id < w.id), w.n + 1
    FROM w WHERE w.id IS NOT NULL AND w.n < :most)
SELECT id FROM w WHERE id IS NOT NULL
-- name: links
-- Read the dependencies from and to these jobs, at most :most rows; a row between two of these jobs comes twice.
SELECT d.job_id, d.upstream_id, d.wants, d.state, d.place FROM outlast_dependencies d WHERE d.job_id {ids}
UNION ALL
SELECT d.job_id, d.upstream_id, d.wants, d.state, d.place
FROM outlast_dependencies d /*! INDEXED BY outlast_dependencies_upstream */ WHERE d.upstream_id {ids}
LIMIT :most
