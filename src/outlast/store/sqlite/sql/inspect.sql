-- Reads for people and screens: no locks, and in WAL mode no writer waits for them.

-- name: search
-- For each of these jobs, in their order: whether it holds a text in its arguments and one in "OUTCOME: MESSAGE" of
-- its last closed attempt, and is not older than a time; NULL lets all pass. Encoded arguments never match, since a
-- match would be chance. lower() changes A to Z alone. The caller stops fetching when the arguments read so far are
-- too long; the rows after that are not read.
SELECT j.id, CASE WHEN :args IS NULL THEN 0 ELSE length(CAST(j.args AS BLOB)) END,
      (:args IS NULL OR instr(lower(j.args), lower(:args)) > 0 AND j.args NOT LIKE ' ["outlast:payload",%')
  AND (:within IS NULL OR coalesce(j.ended_at, j.started_at, j.requeued_at, j.enqueued_at) >= :now - :within)
  AND (:error IS NULL
       OR instr(lower((SELECT outcome || ': ' || message FROM outlast_attempts WHERE job_id = j.id
                       ORDER BY number DESC, token DESC LIMIT 1)), lower(:error)) > 0)
FROM json_each(:ids) AS wanted CROSS JOIN outlast_jobs AS j
WHERE j.id = wanted.value
-- name: children
-- The children of a job from the n-th one (:first) to the :last one, in their order: as many of them as have :bytes of
-- results, and the first one in any case.
SELECT c.n, c.id, c.task, c.state, c.result
FROM (SELECT 0 - d.place AS n, d.upstream_id AS id, j.task, j.state, CAST(j.result AS TEXT) AS result,
             sum(coalesce(length(CAST(j.result AS BLOB)), 0)) OVER (ORDER BY d.place DESC) AS bytes
      FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
      WHERE d.job_id = :job_id AND d.place BETWEEN 0 - :last AND 0 - :first) c
WHERE c.bytes <= :bytes OR c.n = :first ORDER BY c.n
-- name: jobs_of
-- :text_max: arguments are cut at that many characters; NULL: nothing is cut. :whole: include stacks, and include
-- checkpoints and results, cut as well; without it, the latter two are included only if nothing is cut. :last: fill
-- the columns of the last closed attempt, which are NULL if none was closed; it is found by the index on (job_id,
-- number), since numbers rise with tokens. held_back: what a due job in a blocked stream waits for: `throttled` if it
-- is a rate or a hold, else `limited`; a place that is kept for another stream (kept_until) is neither. event: the
-- event for which it waits.
SELECT j.id, j.task, j.queue, j.state, j.priority, j.attempt_count, j.failures, j.losses, j.token,
       j.state = 'queued' AND j.run_at > :now AND j.position IS NULL AS waiting,
       CASE WHEN :text_max IS NULL THEN j.args ELSE substr(j.args, 1, :text_max) END AS args, j.policy,
       j.run_at, j.enqueued_at, j.requeued_at, j.expires_at,
       coalesce(j.worker_id, j.completed_by) AS worker_id, w.name AS worker, w.host, j.key, j.tenant,
       j.started_at, j.ended_at, j.cancel_requested, j.hard_deadline, j.progress,
       CASE WHEN :text_max IS NULL THEN j.checkpoint WHEN :whole THEN substr(j.checkpoint, 1, :text_max) END AS checkpoint,
       j.checkpoint_at,
       CASE WHEN :text_max IS NULL THEN j.result WHEN :whole THEN substr(j.result, 1, :text_max) END AS result,
       j.solo, j.incident, j.stack_at, CASE WHEN :whole THEN substr(j.stack, 1, 131072) END AS stack,
       CASE WHEN j.position IS NOT NULL AND j.stream IS NOT NULL THEN (
           SELECT CASE WHEN s.blocked = -2 OR l.name IS NULL THEN 'limited'
                       WHEN max(coalesce(p.held_until, 0), coalesce(l.held_until, 0)) > :now THEN 'throttled'
                       WHEN nullif(p.opens_at, p.kept_until) IS NOT NULL AND p.used < coalesce(p.own_running, l.running, 2147483647) THEN 'throttled'
                       ELSE 'limited' END
           FROM outlast_streams AS s LEFT JOIN outlast_permits AS p ON p.id = s.blocked
           LEFT JOIN outlast_limits AS l ON l.name = p.name
           WHERE s.id = j.stream AND (s.blocked = -2 OR p.id IS NOT NULL)) END AS held_back,
       CASE WHEN j.state = 'queued' AND j.position IS NULL AND j.attempt_count > 0 THEN (
           SELECT CAST(v.event AS TEXT) FROM outlast_waits AS v
           WHERE v.job_id = j.id AND v.token = j.token AND NOT v.woken) END AS event,
       j.needs,
       a.job_id AS last_job_id, a.token AS last_token, a.number AS last_number, a.outcome AS last_outcome,
       a.charge AS last_charge, a.started_at AS last_started_at, a.ended_at AS last_ended_at,
       a.worker_id AS last_worker_id, a.worker AS last_worker, a.host AS last_host, a.pid AS last_pid,
       a.message AS last_message, a.progress AS last_progress, a.checkpoint_age AS last_checkpoint_age,
       a.crash AS last_crash, a.repeats AS last_repeats, a.dropped AS last_dropped
FROM outlast_jobs AS j
LEFT JOIN outlast_workers AS w ON w.id = coalesce(j.worker_id, j.completed_by)
LEFT JOIN outlast_attempts AS a ON a.token = (
    SELECT l.token FROM outlast_attempts AS l WHERE :last AND l.job_id = j.id
    ORDER BY l.number DESC, l.token DESC LIMIT 1)
WHERE j.id IN (SELECT value FROM json_each(:ids)) ORDER BY j.id DESC
-- name: workers
-- The live workers, and the :gone_max that have gone last.
SELECT w.id, w.name, w.host, w.pid, w.status, w.epoch, w.beat, w.heartbeat, w.lease, w.queues,
       w.tasks, (SELECT count(*) FROM outlast_jobs AS j WHERE j.worker_id = w.id) AS running, w.started_at,
       w.heartbeat_at, w.lease_expires_at, w.stopped_at, w.release, w.lock_path, w.tags,
       w.lacks, w.instance, w.drain_requested, w.cause, w.presence, w.presence_off,
       w.wakeup, w.failing, w.failing_since, w.boot_id, w.lock_device, w.lock_inode,
       w.acknowledged_pauses, w.stacks, :now - w.heartbeat_at AS unheard
FROM outlast_workers AS w
WHERE w.id IN (
    SELECT id FROM outlast_workers INDEXED BY outlast_workers_status_ix WHERE status IN ('active', 'draining')
    UNION ALL
    SELECT id FROM (
        SELECT id FROM outlast_workers INDEXED BY outlast_workers_gone WHERE stopped_at IS NOT NULL
        ORDER BY stopped_at DESC, id DESC LIMIT :gone_max))
ORDER BY w.id
-- name: token_last
SELECT value AS token FROM outlast_sequences WHERE name = 'token'
-- name: unencrypted
-- Count how many of :most unfinished jobs have plain arguments or a plain checkpoint, by task. A text counts as
-- encrypted if it names a key among the codecs at its beginning (outlast/payload/payloads.py): base64 has no
-- quotation marks.
SELECT task, count(*) AS looked_at,
       sum(substr(args, 1, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%'
           OR coalesce(substr(checkpoint, 1, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%', 0)) AS number
FROM (
    SELECT task, args, checkpoint FROM outlast_jobs INDEXED BY outlast_jobs_line
    WHERE position IS NOT NULL AND stream IS NULL
    UNION ALL
    SELECT task, args, checkpoint FROM outlast_jobs INDEXED BY outlast_jobs_stream
    WHERE position IS NOT NULL AND stream IS NOT NULL
    UNION ALL
    SELECT task, args, checkpoint FROM outlast_jobs INDEXED BY outlast_jobs_due
    WHERE state = 'queued' AND position IS NULL
    UNION ALL
    SELECT task, args, checkpoint FROM outlast_jobs INDEXED BY outlast_jobs_worker WHERE worker_id IS NOT NULL
    LIMIT :most)
GROUP BY task ORDER BY task
-- name: now
SELECT :now AS now
-- name: dependencies
-- The jobs that a job waits or waited for, at most :most: first those that are left or have failed, with their number.
SELECT d.upstream_id AS job_id, d.wants, d.state = 2 AS is_met, d.state = 3 AS has_failed, j.task, j.state,
       (SELECT count(*) FROM outlast_dependencies WHERE job_id = :job_id AND state <> 2) AS number_left
FROM (SELECT * FROM outlast_dependencies WHERE job_id = :job_id ORDER BY state = 2, state DESC, place LIMIT :most) d
LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
ORDER BY d.state = 2, d.state DESC, d.place
-- name: returns
-- Whether a job that was cancelled because of others waits again soon, as they were requeued: neither a job that it waited
-- for stands in the way any more, nor its parent, nor that its parent is unknown: a discard forgets its children. A
-- requeue lets the first of those wait again that it brings back; later claims do the others. Reads only.
WITH RECURSIVE up (id) AS (
    SELECT :job_id
    UNION
    SELECT d.upstream_id FROM up JOIN outlast_jobs AS c ON c.id = up.id AND c.state = 'cancelled'
    CROSS JOIN outlast_dependencies AS d ON d.job_id = c.id AND d.state = 3
    UNION
    SELECT d.job_id FROM up JOIN outlast_jobs AS c ON c.id = up.id AND c.state = 'cancelled'
    CROSS JOIN outlast_dependencies AS d ON d.upstream_id = c.id AND d.place < 0)
SELECT NOT EXISTS (
    SELECT 1 FROM up LEFT JOIN outlast_jobs AS o ON o.id = up.id
    WHERE o.id IS NULL OR o.state IN ('completed', 'dead') OR o.state = 'cancelled'
          AND (o.cancel_requested OR o.attempt_count > 0 OR o.key IS NOT NULL OR o.expires_at <= :now
               OR NOT EXISTS (SELECT 1 FROM outlast_dependencies AS d WHERE d.job_id = o.id AND d.state = 3)
                   AND NOT EXISTS (SELECT 1 FROM outlast_dependencies AS d WHERE d.upstream_id = o.id AND d.place < 0))) AS found
-- name: circle
-- Whether a job waits, over any number of others, for itself; at most :most are looked at. A job waits for its upstream
-- jobs, and in an ordered stream for the one that has begun there. Reads only.
WITH RECURSIVE up (id) AS (
    SELECT upstream_id FROM outlast_dependencies WHERE job_id = :job_id AND state <> 2 AND state < 2
    UNION
    SELECT d.upstream_id FROM up JOIN outlast_dependencies d ON d.job_id = up.id AND d.state <> 2 AND d.state < 2
    UNION
    SELECT h.id FROM up CROSS JOIN outlast_jobs AS o ON o.id = up.id CROSS JOIN outlast_streams AS s ON s.id = o.stream
    CROSS JOIN outlast_jobs AS h ON h.id = s.holder AND h.stream = s.id
    WHERE o.ended_at IS NULL AND h.ended_at IS NULL)
SELECT EXISTS (SELECT 1 FROM (SELECT id FROM up LIMIT :most) AS f WHERE f.id = :job_id) AS found
-- name: unresolved
-- Jobs whose state is not what they wait for, in one snapshot, for `outlast verify`: not blocked, and not cancelled, though
-- something is left that they wait for; blocked though nothing is; or blocked by a job that has ended, is gone or is not
-- awaited, without a notice about it. Or they wait for an event that is there, without a notice about it.
SELECT g.id AS job_id, d.upstream_id, true AS is_open, NULL AS event
FROM outlast_dependencies d JOIN outlast_jobs g ON g.id = d.job_id
WHERE d.state <> 2 AND d.place >= 0 AND g.state NOT IN ('blocked', 'cancelled')
UNION ALL
SELECT g.id, NULL, false, NULL FROM outlast_jobs g
WHERE g.state = 'blocked' AND NOT EXISTS (SELECT 1 FROM outlast_dependencies d WHERE d.job_id = g.id AND d.state <> 2)
UNION ALL
SELECT g.id, d.upstream_id, false, NULL
FROM outlast_jobs g JOIN outlast_dependencies d ON d.job_id = g.id LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
WHERE g.state = 'blocked' AND d.state <> 2 AND (d.state <> 1 OR j.id IS NULL OR j.ended_at IS NOT NULL OR NOT j.awaited)
  AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices n WHERE n.job_id = d.upstream_id)
UNION ALL
SELECT w.job_id, NULL, false, CAST(w.event AS TEXT)
FROM outlast_waits w JOIN outlast_events e ON e.name = w.event JOIN outlast_jobs j ON j.id = w.job_id AND j.token = w.token
WHERE NOT w.woken AND j.state = 'queued' AND j.position IS NULL
  AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices n WHERE n.event = w.event)
LIMIT :most
-- name: steps
-- The steps of a job that are kept, in their order, without their values.
SELECT CAST(name AS TEXT) AS name, token, at AS at, length(CAST(value AS BLOB)) AS bytes FROM outlast_steps WHERE job_id = :job_id ORDER BY at, name

-- name: waiting
-- Count the queued jobs of a queue, due or not, up to :most. Each part uses the index that it
-- names and stops at :most; tasks are found by one probe each. Reads only.
WITH RECURSIVE line (task) AS (
    SELECT (SELECT task FROM outlast_jobs INDEXED BY outlast_jobs_line
            WHERE position IS NOT NULL AND stream IS NULL ORDER BY task LIMIT 1)
    UNION ALL
    SELECT (SELECT n.task FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
            WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task > l.task ORDER BY n.task LIMIT 1)
    FROM line AS l WHERE l.task IS NOT NULL
), streamed (task) AS (
    SELECT (SELECT task FROM outlast_jobs INDEXED BY outlast_jobs_stream
            WHERE position IS NOT NULL AND stream IS NOT NULL ORDER BY task LIMIT 1)
    UNION ALL
    SELECT (SELECT n.task FROM outlast_jobs AS n INDEXED BY outlast_jobs_stream
            WHERE n.position IS NOT NULL AND n.stream IS NOT NULL AND n.task > l.task ORDER BY n.task LIMIT 1)
    FROM streamed AS l WHERE l.task IS NOT NULL
)
SELECT count(*) AS number FROM (
    SELECT 1 FROM line AS l CROSS JOIN outlast_jobs AS j INDEXED BY outlast_jobs_line
    WHERE j.task = l.task AND j.queue = :queue AND j.position IS NOT NULL AND j.stream IS NULL
    UNION ALL
    SELECT 1 FROM streamed AS l CROSS JOIN outlast_jobs AS j INDEXED BY outlast_jobs_stream
    WHERE j.task = l.task AND j.queue = :queue AND j.position IS NOT NULL AND j.stream IS NOT NULL
    UNION ALL
    SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_due
    WHERE queue = :queue AND state = 'queued' AND position IS NULL
    LIMIT :most)

-- name: wanted_paused
-- Count the jobs of a queue that want a worker, as defined by postgres/sql/functions/outlast_wanted_v1.sql. Each
-- statement uses the index that it names and stops at :most rows. Reads only, in one snapshot.
SELECT kind, name FROM outlast_pauses
-- name: wanted_workers
-- The live workers, and the last that have gone.
SELECT CAST(queues AS TEXT) AS queues, CAST(tasks AS TEXT) AS tasks, status IN ('active', 'draining') AS lives FROM (
    SELECT * FROM (SELECT * FROM outlast_workers WHERE status IN ('active', 'draining') LIMIT :most)
    UNION ALL
    SELECT * FROM (SELECT * FROM outlast_workers ORDER BY id DESC LIMIT 1000))
-- name: wanted_tasks
WITH RECURSIVE t (task, place) AS (
    SELECT (SELECT task FROM outlast_jobs INDEXED BY outlast_jobs_line
            WHERE position IS NOT NULL AND stream IS NULL ORDER BY task LIMIT 1), 1
    UNION ALL
    SELECT (SELECT n.task FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
            WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task > t.task ORDER BY n.task LIMIT 1), t.place + 1
    FROM t WHERE t.task IS NOT NULL AND t.place < :tasks_max
)
SELECT task FROM t WHERE task IS NOT NULL
-- name: wanted_lined
SELECT count(*) AS number FROM (
    SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_line
    WHERE position IS NOT NULL AND stream IS NULL AND task = :task AND queue = :queue LIMIT :most)
-- name: wanted_streams
-- Jobs of open streams: those that a permit blocks want room, not workers.
SELECT task, count(*) AS number FROM (
    SELECT s.task FROM outlast_streams AS s INDEXED BY outlast_streams_open
    CROSS JOIN outlast_jobs AS j INDEXED BY outlast_jobs_stream
    WHERE s.blocked IS NULL AND s.idle = 0 AND s.queue = :queue
      AND j.task = s.task AND j.queue = s.queue AND j.stream = s.id
      AND j.stream IS NOT NULL AND j.position IS NOT NULL
    LIMIT :most)
GROUP BY task
-- name: wanted_due
SELECT task, count(*) AS number FROM (
    SELECT task FROM outlast_jobs INDEXED BY outlast_jobs_due
    WHERE queue = :queue AND state = 'queued' AND position IS NULL AND run_at <= :now
    LIMIT :most)
GROUP BY task
-- name: wanted_running
SELECT count(*) AS number FROM (
    SELECT queue FROM outlast_jobs INDEXED BY outlast_jobs_worker
    WHERE worker_id IS NOT NULL LIMIT :most)
WHERE queue = :queue
