-- Hand in ended attempts and claim jobs, in one BEGIN IMMEDIATE.
--
-- Why this is right against
--   * a reap or a reconnect: the worker's row is read under the write lock, at its epoch. If the worker was reaped or
--     has reconnected before, nothing is claimed; a later reap waits for this commit and then sees these claims as its
--     orphans.
--   * a late worker: every end is guarded by (id, token, running). Tokens are never drawn twice, so a job that was
--     claimed again has another token, and the update finds no row.
--   * another claim: rows leave the line (position becomes NULL) in the transaction that read them from it.
--
-- Suspects, expiry and which attempts are kept: postgres/sql/migration_0001_schema.sql and outlast_end_v1.sql. A
-- refused end clears no incident. Dropping an attempt takes two probes by (job_id, number), for ends that leave a row.
--
-- Expired queued jobs are ended before anything is claimed, up to a bound; claims pass over the others.
--
-- No step reads all queues. Scheduled jobs are found by their time. The line is read by task, so jobs of tasks that no
-- runner here knows are never read, and within a task by queue, as many queues as there are places
-- (store/sqlite/lanes.py).
--
-- Lists are passed in and out as one JSON text, so that a trip is a dozen steps of sqlite3 for any number of jobs:
-- sqlite3 releases the interpreter's lock for each step, and beside a busy event loop it waits long to get it back.

-- name: worker
SELECT status FROM outlast_workers WHERE id = ? AND epoch = ? AND registration IS ?
-- name: complete
-- The keys of :results name attempts as "id:token"; casting a key to INTEGER reads the id.
UPDATE outlast_jobs AS j
SET state = 'completed', completed_by = worker_id, worker_id = NULL, hard_deadline = NULL,
    ended_at = :now, result = e.value
FROM json_each(:results) AS e
WHERE j.id = CAST(e.key AS INTEGER)
  AND token = CAST(substr(e.key, instr(e.key, ':') + 1) AS INTEGER) AND state = 'running'
  AND (keep IS NULL OR keep > 0 OR awaited)
-- name: complete_away
SELECT j.id FROM json_each(:results) AS e CROSS JOIN outlast_jobs AS j
WHERE j.id = CAST(e.key AS INTEGER)
  AND j.token = CAST(substr(e.key, instr(e.key, ':') + 1) AS INTEGER) AND j.state = 'running'
  AND j.keep <= 0 AND NOT j.awaited
-- name: keep_evidence
INSERT INTO outlast_attempts
    (token, job_id, number, worker_id, worker, host, pid, outcome, charge, message,
     started_at, ended_at, progress, checkpoint_age, crash, repeats, dropped)
SELECT j.token, j.id, j.attempt_count, j.worker_id, w.name, w.host, :pid,
       :outcome, :charge, :message, j.started_at, :now, j.progress,
       :now - j.checkpoint_at, :crash,
       CASE WHEN p.outcome = :outcome THEN min(p.repeats, 2147483646) + 1 ELSE 1 END,
       min(coalesce(p.dropped, 0), 2147483646) + EXISTS (
           SELECT 1 FROM outlast_attempts AS o
           WHERE o.job_id = j.id AND o.number = j.attempt_count - :kept_last
             AND o.number > :kept_first AND o.charge = 'none')
FROM outlast_jobs AS j LEFT JOIN outlast_workers AS w ON w.id = j.worker_id
LEFT JOIN outlast_attempts AS p ON p.token = (
    SELECT a.token FROM outlast_attempts AS a
    WHERE a.job_id = j.id AND a.number = j.attempt_count - 1)
WHERE j.id = :job_id AND j.token = :token AND j.state = 'running'
ON CONFLICT (token) DO NOTHING
-- name: drop_evidence
-- Attempt n deletes attempt n - :kept_last, which keep_evidence has counted. Runs before the end, under the same guard.
DELETE FROM outlast_attempts WHERE token = (
    SELECT o.token FROM outlast_jobs AS j
    JOIN outlast_attempts AS o ON o.job_id = j.id AND o.number = j.attempt_count - :kept_last
    WHERE j.id = :job_id AND j.token = :token AND j.state = 'running'
      AND o.number > :kept_first AND o.charge = 'none')
-- name: losses
SELECT losses FROM outlast_jobs WHERE id = ? AND token = ? AND state = 'running'
-- name: give_back_rate
-- Return the rate that an attempt has taken and never used, except what has refilled since: another start may have
-- taken that. Runs before its end, under the same guard. The trigger on the job's row lowers the count.
UPDATE outlast_permits AS p
SET tat = tat - max(0.0, n.cost * coalesce(l.spacing, 0) - max(0.0, :now - n.started_at)), opens_at = NULL
FROM (SELECT json_extract(j.needs, e.fullkey || '[0]') AS permit, json_extract(j.needs, e.fullkey || '[1]') AS name,
             coalesce(json_extract(j.needs, e.fullkey || '[3]'), 1.0) AS cost, j.started_at
      FROM outlast_jobs AS j CROSS JOIN json_each(j.needs) AS e
      WHERE j.id = :job_id AND j.token = :token AND j.state = 'running') AS n
LEFT JOIN outlast_limits AS l ON l.name = n.name
WHERE p.id = n.permit
-- name: end
-- As outlast_end_v1.sql argues: a cancel request wins over the return to the queue, expiry limits the first start, and
-- losses are counted from the row.
UPDATE outlast_jobs AS j
SET state = n.state,
    position = CASE WHEN n.state = 'queued' THEN :position END,
    run_at = CASE WHEN n.state IN ('queued', 'blocked') THEN n.due ELSE run_at END,
    ended_at = CASE WHEN n.state IN ('queued', 'blocked') THEN NULL ELSE :now END,
    started_at = CASE WHEN :state IN ('queued', 'blocked') AND NOT cancel_requested THEN NULL
                      ELSE started_at END,
    failures = :failures, losses = min(losses, 2147483646) + :loss, solo = :solo, incident = :incident,
    worker_id = NULL, hard_deadline = NULL,
    expires_at = CASE WHEN n.state IN ('queued', 'blocked') AND :began THEN NULL ELSE expires_at END,
    fingerprint = CASE WHEN n.state = 'dead' THEN :fingerprint END
FROM (SELECT id, CASE WHEN :state IN ('queued', 'blocked') AND cancel_requested THEN 'cancelled'
                      WHEN :state = 'blocked' AND NOT EXISTS (
                          SELECT 1 FROM outlast_dependencies AS d WHERE d.job_id = outlast_jobs.id AND d.state <> 2)
                      THEN 'queued'
                      ELSE :state END AS state,
             :now + min(
                 CASE WHEN :doubles_to > 0 THEN min(:doubles_to, :delay * (1 << min(20, (
                     SELECT repeats - 1 FROM outlast_attempts WHERE token = :token))))
                 ELSE :delay END,
                 ifnull(CASE WHEN NOT :began THEN max(0.0, expires_at - :now) / 2 END, 1e15)) AS due
      FROM outlast_jobs
      WHERE id = :job_id AND token = :token AND state = 'running') AS n
WHERE j.id = n.id
-- name: due
SELECT run_at, id, stream IS NOT NULL FROM outlast_jobs INDEXED BY outlast_jobs_run_at
WHERE state = 'queued' AND position IS NULL AND run_at <= ?
ORDER BY run_at LIMIT ?
-- name: line_up
-- Writes run_at, unchanged, so that the trigger opens a job's stream.
UPDATE outlast_jobs SET position = ?, run_at = run_at WHERE id = ?
-- name: waiting
-- Return whether there are suspects, when the first scheduled job falls due, the first queued job expires and the first
-- permit opens, whether a stream is open or a marked permit blocks one, and whether there is a notice.
SELECT EXISTS (SELECT 1 FROM outlast_jobs INDEXED BY outlast_jobs_suspect WHERE state = 'queued' AND solo > 0),
       (SELECT min(run_at) FROM outlast_jobs INDEXED BY outlast_jobs_run_at
        WHERE state = 'queued' AND position IS NULL),
       (SELECT min(expires_at) FROM outlast_jobs INDEXED BY outlast_jobs_expires
        WHERE expires_at IS NOT NULL AND state IN ('queued', 'blocked')),
       (SELECT min(opens_at) FROM outlast_permits INDEXED BY outlast_permits_opens WHERE opens_at IS NOT NULL),
       EXISTS (SELECT 1 FROM outlast_streams INDEXED BY outlast_streams_open WHERE blocked IS NULL AND idle = 0)
       OR EXISTS (SELECT 1 FROM outlast_permits INDEXED BY outlast_permits_freed WHERE freed = 1)
       OR EXISTS (SELECT 1 FROM outlast_permits INDEXED BY outlast_permits_ahead
                  WHERE opens_at IS NOT NULL AND touched_at > :now + 1),
       EXISTS (SELECT 1 FROM outlast_upstream_notices)
-- name: expire
UPDATE outlast_jobs SET state = 'cancelled', ended_at = :now, position = NULL
WHERE id IN (SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_expires
             WHERE expires_at IS NOT NULL AND state IN ('queued', 'blocked') AND expires_at <= :now
             ORDER BY expires_at LIMIT :limit)
RETURNING CASE WHEN keep <= 0 AND NOT awaited THEN id END
-- name: begins_in_time
SELECT e.value FROM json_each(:ids) AS e CROSS JOIN outlast_jobs AS j
WHERE j.id = e.value AND (j.expires_at IS NULL OR j.expires_at > :now)
-- name: lanes
-- For each of these tasks, list the lanes (queue, task) of the next :most queues from :first on in which it has jobs.
-- The query steps from one lane to the next by the index: one probe for each lane, independent of the number of jobs,
-- and none for a lane of another task.
WITH RECURSIVE lane (task, queue, number) AS (
    SELECT e.value, (SELECT n.queue FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
                     WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task = e.value AND n.queue >= :first
                     ORDER BY n.queue LIMIT 1), 1
    FROM json_each(:tasks) AS e
    UNION ALL
    SELECT l.task, (SELECT n.queue FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
                    WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task = l.task AND n.queue > l.queue
                    ORDER BY n.queue LIMIT 1), l.number + 1
    FROM lane AS l WHERE l.queue IS NOT NULL AND l.number < :most
)
SELECT json_group_array(json_array(queue, task)) FROM lane WHERE queue IS NOT NULL
-- name: lanes_of_queues
-- List the lanes of these tasks and queues that are not empty: one probe for each pair.
SELECT json_group_array(json_array(q.value, t.value))
FROM json_each(:queues) AS q CROSS JOIN json_each(:tasks) AS t
WHERE EXISTS (SELECT 1 FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
              WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task = t.value AND n.queue = q.value)
-- name: first_of_lanes
-- Read the first :most jobs of each of these lanes, [queue, task], except jobs of :tenants, if any: only then are the
-- rows read to pass over some; otherwise the index suffices. The caller sorts them. Payloads longer than :long bytes
-- are left out and read separately, since one text holds all jobs.
SELECT json_group_array(json_array(
    rank, position, id, task, queue, CASE WHEN bytes <= :long THEN args END, attempt_count,
    failures, losses, policy, tenant, CASE WHEN bytes <= :long THEN checkpoint END, bytes, run_at,
    expires_at, awaited))
FROM (
    SELECT -j.priority AS rank, j.position, j.id, j.task, j.queue, CAST(j.args AS TEXT) AS args,
           j.attempt_count, j.failures, j.losses, CAST(j.policy AS TEXT) AS policy,
           CAST(j.tenant AS TEXT) AS tenant, CAST(j.checkpoint AS TEXT) AS checkpoint,
           length(CAST(j.args AS BLOB)) + coalesce(length(CAST(j.checkpoint AS BLOB)), 0) AS bytes,
           j.run_at, j.expires_at, j.awaited
    FROM json_each(:lanes) AS e CROSS JOIN outlast_jobs AS j
    WHERE j.id IN (
        SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
        WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.solo = 0 AND n.queue = json_extract(e.value, '$[0]')
          AND n.task = json_extract(e.value, '$[1]')
          AND (:tenants = '[]' OR EXISTS (
              SELECT 1 FROM outlast_jobs AS t
              WHERE t.id = n.id AND (t.tenant IS NULL OR t.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))))
        ORDER BY n.priority DESC, n.position LIMIT :most))
-- name: payloads
SELECT CAST(args AS TEXT), CAST(checkpoint AS TEXT) FROM outlast_jobs WHERE id = ?
-- name: claim
-- Tokens rise from :token on, in the order of :ids.
UPDATE outlast_jobs AS j
SET state = 'running', worker_id = :worker_id, token = :token + e.key, started_at = :now,
    hard_deadline = :now + timeout, attempt_count = min(attempt_count, 2147483646) + 1, position = NULL,
    progress = NULL, checkpoint_number = 0
FROM json_each(:ids) AS e
WHERE j.id = e.value
-- name: cancels
SELECT id, token FROM outlast_jobs
WHERE worker_id = ? AND worker_id IS NOT NULL AND cancel_requested = 1
-- name: next_due
SELECT min(run_at) FROM outlast_jobs INDEXED BY outlast_jobs_run_at
WHERE state = 'queued' AND position IS NULL
-- name: next_due_of_queue
SELECT min(run_at) FROM outlast_jobs INDEXED BY outlast_jobs_due
WHERE queue = ? AND state = 'queued' AND position IS NULL
-- name: clear
UPDATE outlast_jobs SET solo = 0, incident = NULL WHERE incident = ? AND state = 'queued' AND solo = 1
-- name: suspects
-- Read the first :most suspects of the line for a request, task by task, in the columns of "first_of_lanes", and the
-- columns that mark suspects. Few jobs are suspects: suspects of other queues and tenants are passed over.
SELECT -j.priority, j.position, j.id, j.task, j.queue, CAST(j.args AS TEXT), j.attempt_count, j.failures, j.losses,
       CAST(j.policy AS TEXT), CAST(j.tenant AS TEXT), CAST(j.checkpoint AS TEXT),
       length(CAST(j.args AS BLOB)) + coalesce(length(CAST(j.checkpoint AS BLOB)), 0),
       j.run_at, j.expires_at, j.awaited, j.solo, j.incident
FROM json_each(:tasks) AS t CROSS JOIN outlast_jobs AS j INDEXED BY outlast_jobs_suspect
WHERE j.task = t.value AND j.state = 'queued' AND j.solo > 0 AND j.solo = :solo AND j.stream IS NULL
  AND j.position IS NOT NULL
  AND (:queues = '[]' OR j.queue IN (SELECT q.value FROM json_each(:queues) AS q))
  AND j.queue NOT IN (SELECT q.value FROM json_each(:not_queues) AS q)
  AND (j.tenant IS NULL OR j.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))
ORDER BY -j.priority, j.position LIMIT :most
