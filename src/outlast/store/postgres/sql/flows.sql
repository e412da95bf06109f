-- Find flows, for people and screens: jobs that wait for each other, and children with their parents. There is no row of a
-- flow: it is walked from one of its jobs, up and down, by the two indexes of outlast_dependencies. Reads only.

-- name: links
-- What these jobs wait for, and what waits for them, at most :most rows; a row between two of these jobs comes twice.
SELECT f.job_id, f.upstream_id, f.wants, f.state, f.place
FROM unnest(:ids::bigint[]) AS u (id)
CROSS JOIN LATERAL (
    (SELECT d.job_id, d.upstream_id, d.wants, d.state, d.place FROM outlast_dependencies d
     WHERE d.job_id = u.id ORDER BY d.job_id, d.place LIMIT :most)
    UNION ALL
    (SELECT d.job_id, d.upstream_id, d.wants, d.state, d.place FROM outlast_dependencies d
     WHERE d.upstream_id = u.id ORDER BY d.upstream_id, d.state LIMIT :most)) f
LIMIT :most::integer

-- name: members
-- These jobs, as far as a flow shows them. may_return: it waits again, if what it waited for is requeued. phase: as
-- phase_of in documents.py, as far as the job itself tells it, without workers, pauses and limits.
SELECT j.id, j.task, j.state, j.tenant, j.enqueued_at,
       CASE WHEN j.state <> 'queued' THEN j.state
            WHEN j.solo > 0 THEN 'suspect'
            WHEN j.position IS NOT NULL OR j.run_at <= date_part('epoch', statement_timestamp()) THEN 'queued'
            WHEN j.attempt_count > 0 AND EXISTS (
                SELECT FROM outlast_waits v WHERE v.job_id = j.id AND v.token = j.token AND NOT v.woken) THEN 'waiting'
            WHEN j.failures > 0 OR j.losses > 0 THEN 'retrying'
            ELSE 'scheduled' END AS phase,
       j.state = 'cancelled' AND NOT j.cancel_requested AND j.attempt_count = 0 AND j.key IS NULL
           AND (j.expires_at IS NULL OR j.expires_at > date_part('epoch', statement_timestamp())) AS may_return
FROM unnest(:ids::bigint[]) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])

-- name: waited
-- The newest jobs before one that have waited for others, or have children, each by one probe of the primary key,
-- however many rows it has there.
WITH RECURSIVE w (id, n) AS (
    (SELECT d.job_id, 1 FROM outlast_dependencies d WHERE d.job_id < :before::bigint ORDER BY d.job_id DESC LIMIT 1)
    UNION ALL
    SELECT p.job_id, w.n + 1
    FROM w CROSS JOIN LATERAL (
        SELECT d.job_id FROM outlast_dependencies d WHERE d.job_id < w.id ORDER BY d.job_id DESC LIMIT 1) p
    WHERE w.n < :most)
SELECT id FROM w
