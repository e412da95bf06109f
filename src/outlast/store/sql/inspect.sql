-- Reads for people and screens: statements that all stores share (statements.py). Reads only.

-- name: refusals
-- Refused writes, newest first; the attempt of that token shows which worker tried it.
SELECT r.id, r.job_id, r.token, r.verb, r.at, r.late_by,
       coalesce(
           (SELECT a.worker FROM outlast_attempts a
            WHERE a.token = r.token AND a.job_id = r.job_id),
           (SELECT w.name FROM outlast_jobs j JOIN outlast_workers w ON w.id = j.completed_by
            WHERE j.id = r.job_id AND j.token = r.token)) AS worker
FROM outlast_refusals r
WHERE (:job_id::bigint IS NULL OR r.job_id = :job_id) AND (:before_id::bigint IS NULL OR r.id < :before_id)
ORDER BY r.id DESC LIMIT :limit::integer
-- name: named
-- Ids of jobs by the token of an attempt (NULL: no token is asked for), or by the key of an unfinished job, each by
-- its own index. A token is found if its attempt is closed or under way, or if its lines are kept; a completed
-- attempt is in an index only for its lines.
SELECT job_id AS id FROM outlast_attempts WHERE token = :token::bigint
UNION SELECT job_id FROM outlast_logs WHERE token = :token
UNION SELECT id FROM outlast_jobs /*! INDEXED BY outlast_jobs_worker */
    WHERE worker_id IS NOT NULL AND token = :token
UNION SELECT id FROM outlast_jobs /*! INDEXED BY outlast_jobs_key */
    WHERE key = :key::text AND key IS NOT NULL AND ended_at IS NULL
ORDER BY id DESC LIMIT :limit
-- name: doubled
-- Unfinished jobs with the key of an earlier one, for `outlast verify`. They are grouped by an expression: an index
-- that let them in may have them in a wrong order.
SELECT max(j.id) AS job_id, min(j.id) AS holder_id FROM outlast_jobs j
WHERE j.key IS NOT NULL AND j.ended_at IS NULL GROUP BY j.key || '' HAVING count(*) > 1 ORDER BY 1 LIMIT :most::integer
-- name: held
-- Running jobs, their workers, and the progress last reported, up to :limit jobs, by the index of running jobs.
SELECT j.id AS job_id, j.worker_id, j.progress
FROM outlast_jobs j /*! INDEXED BY outlast_jobs_worker */
WHERE j.worker_id IS NOT NULL ORDER BY j.worker_id LIMIT :limit::integer
-- name: served
-- The queues and tasks that active workers announce, as JSON lists.
SELECT DISTINCT queues, tasks FROM outlast_workers WHERE status = 'active'
-- name: counts
-- The number of jobs by queue and state. Reads the whole table: for people, not for the hot path.
SELECT queue, state, count(*) AS number FROM outlast_jobs GROUP BY queue, state
-- name: history_jobs
-- Jobs by rising id, for the checker. In the snapshot of its transaction.
SELECT j.id, j.state, j.attempt_count, j.failures, j.losses, j.policy, j.solo, j.token,
       j.started_at, j.ended_at,
       j.worker_id, w.status AS worker_status, j.task, j.queue, j.tenant,
       CASE WHEN strpos(j.needs, ',true]') > 0 THEN j.stream END AS ordered
FROM outlast_jobs j LEFT JOIN outlast_workers w ON w.id = j.worker_id
WHERE j.id > :after ORDER BY j.id LIMIT :limit::integer
-- name: history_attempts
-- Closed attempts of a range of jobs, including job :last (NULL: to the end).
SELECT job_id, token, number, outcome, charge, started_at,
       ended_at, crash IS NOT NULL AS has_crash, worker_id,
       dropped
FROM outlast_attempts
WHERE job_id > :after AND job_id <= coalesce(:last::bigint, 9223372036854775807)
ORDER BY job_id, token
-- name: attempts
-- The closed attempts of a job, in the order of their tokens.
SELECT job_id, token, number, outcome, charge, started_at,
       ended_at, worker_id, worker, host, pid, message,
       progress, checkpoint_age, crash, repeats, dropped
FROM outlast_attempts WHERE job_id = :job_id ORDER BY token
-- name: children_end
-- The highest n of the children of a job, 0 if it has none: the first row of the primary key, in places below zero.
SELECT COALESCE(0 - MIN(d.place), 0) AS n FROM outlast_dependencies d WHERE d.job_id = :job_id AND d.place < 0
-- name: logs
-- The kept lines of a job's attempts, in the order of their tokens.
SELECT token, number, printed, lines FROM outlast_logs WHERE job_id = :job_id ORDER BY job_id, token
