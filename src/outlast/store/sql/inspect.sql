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
-- name: counts
-- The number of jobs by queue and state. Reads the whole table: for people, not for the hot path.
SELECT queue, state, count(*) AS number FROM outlast_jobs GROUP BY queue, state
-- name: history_jobs
-- Jobs by rising id, for the checker. In the snapshot of its transaction.
SELECT j.id, j.state, j.attempt_count, j.failures, j.losses, j.policy, j.solo, j.token,
       j.started_at, j.ended_at, j.requeued_at,
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
SELECT {attempt} FROM outlast_attempts WHERE job_id = :job_id ORDER BY token
-- name: children_end
-- The highest n of the children of a job, 0 if it has none: the first row of the primary key, in places below zero.
SELECT COALESCE(0 - MIN(d.place), 0) AS n FROM outlast_dependencies d WHERE d.job_id = :job_id AND d.place < 0
-- name: logs
-- The kept lines of a job's attempts, in the order of their tokens.
SELECT token, number, printed, lines FROM outlast_logs WHERE job_id = :job_id ORDER BY job_id, token
-- name: jobs_of
-- These jobs as people read them, newest id first, with the workers that run them or completed them. :text_max:
-- arguments are cut at that many characters; NULL: nothing is cut. :whole: include stacks, and include checkpoints and
-- results, cut as well; without it, the latter two are included only if nothing is cut. held_back: why a due job in a
-- blocked stream waits: `throttled` for a rate or a hold, otherwise `limited`; a place that is kept for another stream
-- (kept_until) is neither. event: the event for which the job waits. The workers are read job by job, which rules out
-- plans that begin with all of them.
SELECT {j.job}, j.state = 'queued' AND j.position IS NULL AND j.run_at > {now} AS waiting,
       CASE WHEN :text_max::integer IS NULL THEN j.args ELSE substr(j.args, 1, :text_max) END AS args,
       coalesce(j.worker_id, j.completed_by) AS worker_id,
       (SELECT w.name FROM outlast_workers w WHERE w.id = coalesce(j.worker_id, j.completed_by)) AS worker,
       (SELECT w.host FROM outlast_workers w WHERE w.id = coalesce(j.worker_id, j.completed_by)) AS host,
       CASE WHEN :text_max IS NULL THEN j.checkpoint WHEN :whole::boolean THEN substr(j.checkpoint, 1, :text_max) END AS checkpoint,
       CASE WHEN :text_max IS NULL THEN j.result WHEN :whole THEN substr(j.result, 1, :text_max) END AS result,
       CASE WHEN :whole THEN substr(j.stack, 1, 131072) END AS stack, j.needs AS limits,
       CASE WHEN j.position IS NOT NULL AND j.stream IS NOT NULL THEN (
           SELECT CASE WHEN s.blocked = -2 OR l.name IS NULL THEN 'limited'
                       WHEN p.held_until > {now} OR l.held_until > {now} THEN 'throttled'
                       WHEN nullif(p.opens_at, p.kept_until) IS NOT NULL
                            AND p.used < coalesce(p.own_running, l.running, 2147483647) THEN 'throttled'
                       ELSE 'limited' END
           FROM outlast_streams s LEFT JOIN outlast_permits p ON p.id = s.blocked
           LEFT JOIN outlast_limits l ON l.name = p.name
           WHERE s.id = j.stream AND (s.blocked = -2 OR p.id IS NOT NULL)) END AS held_back,
       CASE WHEN j.state = 'queued' AND j.position IS NULL AND j.attempt_count > 0 THEN (
           SELECT v.event FROM outlast_waits v WHERE v.job_id = j.id AND v.token = j.token AND NOT v.woken) END AS event
FROM outlast_jobs j WHERE j.id {ids} ORDER BY j.id DESC
-- name: dependencies
-- The upstream jobs of a job, past ones included, at most :most: first those that are left or have failed, with their
-- number. A quiet one (4) is met once the job has completed. Only the rows that are shown are looked up, except quiet
-- ones.
SELECT u.job_id, u.wants, u.is_met, u.has_failed, j.task, j.state,
       (SELECT count(*) FROM outlast_dependencies n WHERE n.job_id = :job_id AND n.state <> 2 AND (n.state <> 4 OR NOT EXISTS (
            SELECT 1 FROM outlast_jobs o WHERE o.id = n.upstream_id AND o.state = 'completed'))) AS number_left
FROM (SELECT d.upstream_id AS job_id, d.wants, d.place, d.state = 3 AS has_failed, d.state = 2 OR d.state = 4 AND EXISTS (
                 SELECT 1 FROM outlast_jobs o WHERE o.id = d.upstream_id AND o.state = 'completed') AS is_met
      FROM outlast_dependencies d WHERE d.job_id = :job_id ORDER BY is_met, d.state <> 3, d.place LIMIT :most) u
LEFT JOIN outlast_jobs j ON j.id = u.job_id ORDER BY u.is_met, NOT u.has_failed, u.place
-- name: sent
-- Whether the event was sent that a job waits for.
SELECT EXISTS (SELECT 1 FROM outlast_waits w JOIN outlast_events e ON e.name = w.event
               WHERE w.job_id = :job_id AND NOT w.woken) AS found
-- name: unresolved
-- Jobs whose state contradicts their dependencies, in one snapshot, for `outlast verify`: neither blocked nor
-- cancelled, though a dependency is left; blocked though none is; or blocked by a job that has ended, is gone or is not
-- awaited, without a notice about it. (A completion that only a walk sees needs none: state 4, outlast_follow_v1.) Or
-- they wait for an event that was sent, without a notice about it, or that counts as noticed.
SELECT g.id AS job_id, d.upstream_id, true AS is_open, NULL AS event
FROM outlast_dependencies d JOIN outlast_jobs g ON g.id = d.job_id LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
WHERE d.state <> 2 AND (d.state <> 4 OR j.state <> 'completed') AND d.place >= 0
  AND g.state NOT IN ('blocked', 'cancelled')
UNION ALL
SELECT g.id, NULL, false, NULL FROM outlast_jobs g
WHERE g.state = 'blocked' AND NOT EXISTS (
    SELECT 1 FROM outlast_dependencies d WHERE d.job_id = g.id AND d.state IN (0, 1, 3))
UNION ALL
SELECT g.id, d.upstream_id, false, NULL
FROM outlast_jobs g JOIN outlast_dependencies d ON d.job_id = g.id LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
WHERE g.state = 'blocked' AND d.state <> 2
  AND (d.state IN (0, 3) OR j.id IS NULL OR NOT j.awaited OR j.ended_at IS NOT NULL AND (d.state = 1 OR j.state <> 'completed'))
  AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices n WHERE n.job_id = d.upstream_id)
UNION ALL
SELECT w.job_id, NULL, false, w.event
FROM outlast_waits w JOIN outlast_jobs j ON j.id = w.job_id AND j.token = w.token
WHERE j.state = 'queued' AND j.position IS NULL
  AND (w.woken OR EXISTS (SELECT 1 FROM outlast_events e WHERE e.name = w.event)
       AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices n WHERE n.event = w.event))
LIMIT :most
-- name: workers
-- Workers with the number of jobs that they hold: the live ones, and the :gone_max that have gone last, each by its
-- own index. Running jobs are counted by their index, 20,000 of them at most. One snapshot.
WITH held AS MATERIALIZED (
    SELECT worker_id, count(*) AS number
    FROM (SELECT worker_id FROM outlast_jobs /*! INDEXED BY outlast_jobs_worker */
          WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT 20000) c
    GROUP BY worker_id)
SELECT {w.worker}, coalesce(held.number, 0) AS running, {now} - w.heartbeat_at AS unheard
FROM (SELECT * FROM (SELECT * FROM outlast_workers /*! INDEXED BY outlast_workers_status_ix */
                     WHERE status IN ('active', 'draining') ORDER BY boot_id, lock_device, id) l
      UNION ALL
      SELECT * FROM (SELECT * FROM outlast_workers /*! INDEXED BY outlast_workers_gone */
                     WHERE stopped_at IS NOT NULL ORDER BY stopped_at DESC, id DESC LIMIT :gone_max) g) w
LEFT JOIN held ON held.worker_id = w.id
ORDER BY w.id
-- name: unencrypted
-- Count how many of :most unfinished jobs have plain arguments or a plain checkpoint, by task: jobs in the line, jobs
-- that wait for their time and running jobs, each by the index that holds only these. A text counts as
-- encrypted if it names a key among the codecs at its beginning (outlast/payload/payloads.py): base64 has no
-- quotation marks.
SELECT task, count(*) AS looked_at,
       count(*) FILTER (WHERE substr(args, 1, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%'
           OR substr(checkpoint, 1, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%') AS number
FROM (
    SELECT * FROM (SELECT task, args, checkpoint FROM outlast_jobs /*! INDEXED BY outlast_jobs_line */
                   WHERE position IS NOT NULL AND stream IS NULL ORDER BY task, queue LIMIT :most) a
    UNION ALL
    SELECT * FROM (SELECT task, args, checkpoint FROM outlast_jobs /*! INDEXED BY outlast_jobs_stream */
                   WHERE position IS NOT NULL AND stream IS NOT NULL ORDER BY task, queue, stream LIMIT :most) b
    UNION ALL
    SELECT * FROM (SELECT task, args, checkpoint FROM outlast_jobs /*! INDEXED BY outlast_jobs_due */
                   WHERE state = 'queued' AND position IS NULL AND solo >= 0 ORDER BY queue, run_at LIMIT :most) c
    UNION ALL
    SELECT * FROM (SELECT task, args, checkpoint FROM outlast_jobs /*! INDEXED BY outlast_jobs_worker */
                   WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT :most) d
    LIMIT :most) j
GROUP BY task ORDER BY task
-- name: now
-- The time of the store's clock, in seconds since 1970.
SELECT {now} AS now
