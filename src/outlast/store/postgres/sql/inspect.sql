-- Reads for people and screens, without locks. functions/NAME.sql argues why a call of a function is right against a
-- concurrent claim, reap and late worker.

-- name: children
-- The children of a job from the n-th one (:first) to the :last one, in their order: as many of them as have :bytes of
-- results, and the first one in any case.
SELECT c.n, c.id, c.task, c.state, c.result
FROM (SELECT 0 - d.place AS n, d.upstream_id AS id, j.task, j.state, j.result,
             sum(coalesce(octet_length(j.result), 0)) OVER (ORDER BY d.place DESC) AS bytes
      FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
      WHERE d.job_id = :job_id AND d.place BETWEEN 0 - :last AND 0 - :first) c
WHERE c.bytes <= :bytes OR c.n = :first ORDER BY c.n
-- name: jobs_of
-- These jobs as people read them, newest id first, with the workers that run them or completed them. :text_max:
-- arguments are cut at that many characters; NULL: nothing is cut. :whole: include stacks, and include checkpoints
-- and results, cut as well; without it, the latter two are included only if nothing is cut. :last: fill the columns
-- of the last closed attempt, which are NULL if none was closed; it is found by the index on (job_id, number), since
-- numbers rise with tokens. held_back: what a due job in a blocked stream waits for: `throttled` if it is a rate or a
-- hold, else `limited`. event: the event for which it waits. Reads only. The LIMIT in the lookup of the worker rules out plans that begin with all
-- workers, including gone ones.
SELECT j.id, j.task, j.queue, j.state, j.priority, j.attempt_count, j.failures, j.losses, j.token,
       j.state = 'queued' AND j.position IS NULL AND j.run_at > date_part('epoch', statement_timestamp()) AS waiting,
       CASE WHEN :text_max::integer IS NULL THEN j.args ELSE left(j.args, :text_max) END AS args, j.policy,
       j.run_at, j.enqueued_at, j.requeued_at, j.expires_at,
       coalesce(j.worker_id, j.completed_by) AS worker_id, w.name AS worker,
       w.host, j.key, j.tenant, j.started_at, j.ended_at, j.cancel_requested, j.hard_deadline, j.progress,
       CASE WHEN :text_max IS NULL THEN j.checkpoint WHEN :whole::boolean THEN left(j.checkpoint, :text_max) END AS checkpoint,
       j.checkpoint_at,
       CASE WHEN :text_max IS NULL THEN j.result WHEN :whole::boolean THEN left(j.result, :text_max) END AS result,
       j.solo, j.incident, j.stack_at,
       CASE WHEN :whole THEN left(j.stack, 131072) END AS stack, j.needs,
       CASE WHEN j.position IS NOT NULL AND j.stream IS NOT NULL THEN (
           SELECT CASE WHEN s.blocked = -2 OR l.name IS NULL THEN 'limited'
                       WHEN greatest(p.held_until, l.held_until) > date_part('epoch', statement_timestamp()) THEN 'throttled'
                       WHEN p.opens_at IS NOT NULL AND p.used < coalesce(p.own_running, l.running, 2147483647) THEN 'throttled'
                       ELSE 'limited' END
           FROM outlast_streams s LEFT JOIN outlast_permits p ON p.id = s.blocked
           LEFT JOIN outlast_limits l ON l.name = p.name
           WHERE s.id = j.stream AND (s.blocked = -2 OR p.id IS NOT NULL)) END AS held_back,
       CASE WHEN j.state = 'queued' AND j.position IS NULL AND j.attempt_count > 0 THEN (
           SELECT v.event FROM outlast_waits v WHERE v.job_id = j.id AND v.token = j.token AND NOT v.woken) END AS event,
       a.job_id AS last_job_id, a.token AS last_token, a.number AS last_number, a.outcome AS last_outcome,
       a.charge AS last_charge, a.started_at AS last_started_at,
       a.ended_at AS last_ended_at, a.worker_id AS last_worker_id, a.worker AS last_worker,
       a.host AS last_host, a.pid AS last_pid, a.message AS last_message, a.progress AS last_progress,
       a.checkpoint_age AS last_checkpoint_age, a.crash AS last_crash, a.repeats AS last_repeats, a.dropped AS last_dropped
FROM outlast_jobs j
LEFT JOIN LATERAL (
    SELECT o.name, o.host FROM outlast_workers o WHERE o.id = coalesce(j.worker_id, j.completed_by) LIMIT 1) w ON true
LEFT JOIN LATERAL (
    SELECT * FROM outlast_attempts WHERE :last::boolean AND job_id = j.id
    ORDER BY number DESC, token DESC LIMIT 1) a ON true
WHERE j.id = ANY(:ids::bigint[])
ORDER BY j.id DESC

-- name: search
-- Find which of these jobs hold the text :args in their arguments and the text :error in "OUTCOME: MESSAGE" of their
-- last closed attempt, and have ended, begun, or been requeued or enqueued in the last :within seconds; NULL lets all
-- pass. Encoded arguments never match, since a match would be chance.
--
-- The newest job is always read, and older ones as long as the arguments read have :size_max bytes or fewer in all
-- (their length is known without reading them). before: the last job read, if there are others. Reads only, and only
-- these rows, each once. In collation "C" lower() changes A to Z alone, as on SQLite.
WITH asked AS MATERIALIZED (
    SELECT j.id, j.args, coalesce(j.ended_at, j.started_at, j.requeued_at, j.enqueued_at) AS at,
           CASE WHEN :args::text IS NULL THEN 0 ELSE octet_length(j.args) END AS size
    FROM outlast_jobs j WHERE j.id = ANY(:ids::bigint[])
), looked AS MATERIALIZED (
    SELECT a.id, a.args, a.at, a.size
    FROM (SELECT *, sum(size) OVER (ORDER BY id DESC) AS read, row_number() OVER (ORDER BY id DESC) AS place
          FROM asked) a
    WHERE a.read <= :size_max::bigint OR a.place = 1
)
SELECT ARRAY(
           SELECT j.id FROM looked j
           WHERE (:args IS NULL OR strpos(lower(j.args COLLATE "C"), lower(:args COLLATE "C")) > 0
                                AND j.args NOT LIKE ' ["outlast:payload",%')
             AND (:within::float8 IS NULL OR j.at >= date_part('epoch', statement_timestamp()) - :within)
             AND (:error::text IS NULL
                  OR (SELECT strpos(lower((t.outcome || ': ' || t.message) COLLATE "C"), lower(:error COLLATE "C"))
                      FROM outlast_attempts t WHERE t.job_id = j.id ORDER BY t.number DESC, t.token DESC LIMIT 1) > 0)
           ORDER BY j.id DESC) AS ids,
       CASE WHEN (SELECT count(*) FROM looked) < (SELECT count(*) FROM asked) THEN (SELECT min(id) FROM looked)
       END AS before,
       (SELECT coalesce(sum(size), 0) FROM looked)::bigint AS size

-- name: dependencies
-- The jobs that a job waits or waited for, at most :most: first those that are left or have failed, with their number.
-- A quiet one (4) is met once the job has completed.
SELECT d.upstream_id AS job_id, d.wants, m.is_met, d.state = 3 AS has_failed, j.task, j.state,
       count(*) FILTER (WHERE NOT m.is_met) OVER () AS number_left
FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
CROSS JOIN LATERAL (SELECT d.state = 2 OR d.state = 4 AND j.state IS NOT DISTINCT FROM 'completed' AS is_met) m
WHERE d.job_id = :job_id ORDER BY m.is_met, d.state <> 3, d.place LIMIT :most
-- name: returns
-- Whether a job that was cancelled because of others waits again soon, as they were requeued: neither a job that it waited
-- for stands in the way any more, nor its parent, nor that its parent is unknown: a discard forgets its children. A
-- requeue lets the first of those wait again that it brings back; later claims do the others. Reads only.
WITH RECURSIVE up (id) AS (
    SELECT :job_id::bigint
    UNION
    SELECT u.id FROM up JOIN outlast_jobs c ON c.id = up.id AND c.state = 'cancelled'
    CROSS JOIN LATERAL (
        SELECT d.upstream_id AS id FROM outlast_dependencies d WHERE d.job_id = c.id AND d.state = 3
        UNION ALL SELECT d.job_id FROM outlast_dependencies d WHERE d.upstream_id = c.id AND d.place < 0) u)
SELECT NOT EXISTS (
    SELECT FROM up LEFT JOIN outlast_jobs o ON o.id = ANY (ARRAY[up.id])
    WHERE o.id IS NULL OR o.state IN ('completed', 'dead') OR o.state = 'cancelled'
          AND (o.cancel_requested OR o.attempt_count > 0 OR o.key IS NOT NULL
               OR o.expires_at <= date_part('epoch', statement_timestamp())
               OR coalesce((SELECT d.job_id FROM outlast_dependencies d WHERE d.job_id = o.id AND d.state = 3 LIMIT 1),
                           (SELECT d.job_id FROM outlast_dependencies d WHERE d.upstream_id = o.id AND d.place < 0 LIMIT 1)) IS NULL)) AS found
-- name: circle
-- Whether a job waits, over any number of others, for itself; at most :most are looked at. A job waits for its upstream
-- jobs, and in an ordered stream for the one that has begun there. Reads only.
WITH RECURSIVE up (id) AS (
    SELECT upstream_id FROM outlast_dependencies WHERE job_id = :job_id AND state IN (0, 1, 4)
    UNION
    SELECT e.id FROM up CROSS JOIN LATERAL (
        SELECT d.upstream_id AS id FROM outlast_dependencies d WHERE d.job_id = up.id AND d.state IN (0, 1, 4)
        UNION ALL
        SELECT h.id FROM outlast_jobs o JOIN outlast_streams s ON s.id = o.stream
        JOIN outlast_jobs h ON h.id = ANY (ARRAY[s.holder]) AND h.stream = s.id AND h.ended_at IS NULL
        WHERE o.id = ANY (ARRAY[up.id]) AND o.ended_at IS NULL) e)
SELECT EXISTS (SELECT FROM (SELECT id FROM up LIMIT :most) f WHERE f.id = :job_id) AS found
-- name: unresolved
-- Jobs whose state is not what they wait for, in one snapshot, for `outlast verify`: not blocked, and not cancelled, though
-- something is left that they wait for; blocked though nothing is; or blocked by a job that has ended, is gone or is not
-- awaited, without a notice about it. (A completion of which only a walk learns needs none: state 4, outlast_follow_v1.)
-- Or they wait for an event that is there, without a notice about it.
SELECT g.id AS job_id, d.upstream_id, true AS is_open, NULL AS event
FROM outlast_dependencies d JOIN outlast_jobs g ON g.id = d.job_id LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
WHERE (d.state IN (0, 1, 3) OR d.state = 4 AND j.state <> 'completed') AND d.place >= 0
  AND g.state NOT IN ('blocked', 'cancelled')
UNION ALL
SELECT g.id, NULL, false, NULL FROM outlast_jobs g
WHERE g.state = 'blocked' AND NOT EXISTS (
    SELECT FROM outlast_dependencies d WHERE d.job_id = g.id AND d.state IN (0, 1, 3))
UNION ALL
SELECT g.id, d.upstream_id, false, NULL
FROM outlast_jobs g JOIN outlast_dependencies d ON d.job_id = g.id LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
WHERE g.state = 'blocked' AND d.state <> 2
  AND (d.state IN (0, 3) OR j.id IS NULL OR NOT j.awaited OR j.ended_at IS NOT NULL AND (d.state = 1 OR j.state <> 'completed'))
  AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices n WHERE n.job_id = d.upstream_id)
UNION ALL
SELECT w.job_id, NULL, false, w.event
FROM outlast_waits w JOIN outlast_events e ON e.name = w.event JOIN outlast_jobs j ON j.id = w.job_id AND j.token = w.token
WHERE NOT w.woken AND j.state = 'queued' AND j.position IS NULL
  AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices n WHERE n.event = w.event)
LIMIT :most
-- name: steps
-- The steps of a job that are kept, in their order, without their values.
SELECT name, token, at, octet_length(value) AS bytes FROM outlast_steps WHERE job_id = :job_id ORDER BY at, name

-- name: workers
-- Workers with the number of jobs that they hold: the live ones, and the :gone_max that have gone last, each by its
-- own index. Running jobs are counted by their index, 20,000 of them at most. Reads only; one snapshot.
WITH held AS MATERIALIZED (
    SELECT worker_id, count(*) AS number
    FROM (SELECT worker_id FROM outlast_jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT 20000) c
    GROUP BY worker_id)
SELECT w.id, w.name, w.host, w.pid, w.status, w.epoch, w.beat, w.heartbeat, w.lease, w.queues,
       w.tasks, coalesce(held.number, 0) AS running,
       w.started_at, w.heartbeat_at, w.lease_expires_at, w.stopped_at, w.release, w.lock_path,
       w.tags, w.lacks, w.instance, w.drain_requested, w.cause, w.presence, w.presence_off,
       w.wakeup, w.failing, w.failing_since,
       w.boot_id, w.lock_device, w.lock_inode, w.acknowledged_pauses, w.stacks,
       date_part('epoch', statement_timestamp()) - w.heartbeat_at AS unheard
FROM ((SELECT * FROM outlast_workers WHERE status IN ('active', 'draining') ORDER BY boot_id, lock_device, id)
      UNION ALL
      (SELECT * FROM outlast_workers WHERE stopped_at IS NOT NULL ORDER BY stopped_at DESC, id DESC LIMIT :gone_max)) w
LEFT JOIN held ON held.worker_id = w.id
ORDER BY w.id

-- name: wanted
-- The head of the function defines what counts. Reads only.
SELECT outlast_wanted_v1(:queue) AS number

-- name: waiting
-- Count the queued jobs of a queue, due or not, up to :most. Each part uses one index and stops at
-- :most; tasks are found by one probe each. Reads only.
WITH RECURSIVE line (task) AS (
    (SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NULL
     ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
    UNION ALL
    SELECT n.task FROM line l CROSS JOIN LATERAL (
        SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NULL AND j.task > l.task
        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n
), streamed (task) AS (
    (SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NOT NULL
     ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1)
    UNION ALL
    SELECT n.task FROM streamed l CROSS JOIN LATERAL (
        SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NOT NULL AND j.task > l.task
        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) n
)
SELECT count(*) AS number FROM (
    SELECT 1 FROM line l CROSS JOIN LATERAL (
        SELECT FROM outlast_jobs j
        WHERE j.task = l.task AND j.queue = :queue::text AND j.position IS NOT NULL AND j.stream IS NULL
        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT :most::integer) a
    UNION ALL
    SELECT 1 FROM streamed l CROSS JOIN LATERAL (
        SELECT FROM outlast_jobs j
        WHERE j.task = l.task AND j.queue = :queue::text AND j.position IS NOT NULL AND j.stream IS NOT NULL
        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT :most::integer) b
    UNION ALL
    SELECT 1 FROM (
        SELECT FROM outlast_jobs j
        WHERE j.queue = :queue::text AND j.state = 'queued' AND j.position IS NULL AND j.solo >= 0
        ORDER BY j.queue, j.run_at LIMIT :most::integer) d
    LIMIT :most::integer) c

-- name: token_last
-- The highest token ever drawn; 0: none. It belongs to no snapshot, so read it after the rows that it is compared
-- with.
SELECT coalesce(pg_sequence_last_value('outlast_token_seq'), 0) AS token

-- name: unencrypted
-- Count how many of :most unfinished jobs have plain arguments or a plain checkpoint, by task: jobs in the line, jobs
-- that wait for their time and running jobs, each by the index that holds only these. A text counts as
-- encrypted if it names a key among the codecs at its beginning (outlast/payload/payloads.py): base64 has no
-- quotation marks. Reads only.
SELECT task, count(*) AS looked_at,
       count(*) FILTER (WHERE left(args, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%'
           OR left(checkpoint, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%') AS number
FROM (
    SELECT * FROM (
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE position IS NOT NULL AND stream IS NULL ORDER BY task, queue, (-priority), position LIMIT :most)
        UNION ALL
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE position IS NOT NULL AND stream IS NOT NULL
         ORDER BY task, queue, stream, coalesce(aged, position) LIMIT :most)
        UNION ALL
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE state = 'queued' AND position IS NULL AND solo >= 0 ORDER BY queue, run_at LIMIT :most)
        UNION ALL
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE worker_id IS NOT NULL ORDER BY worker_id, cancel_requested LIMIT :most)) a
    LIMIT :most) j
GROUP BY task ORDER BY task

-- name: now
-- The time of the database, in seconds since 1970.
SELECT date_part('epoch', clock_timestamp()) AS now
