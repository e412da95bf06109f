-- Claim jobs from streams, in the one BEGIN IMMEDIATE of an exchange (exchange.sql).
--
-- Why this is right against
--   * another claim, an end, a reap, a late worker: a permit's count changes only in the transaction that starts or
--     ends an attempt, under the write lock; the trigger on the job's row lowers it with the accepted end. So nothing
--     that is read here changes before the commit, and at each commit a count is the number of running attempts.
--   * a stream that no worker checks any more: a stream is closed only here, and by a pruner, in the transaction that has
--     checked it: idle if none of its jobs has a position, blocked if one of its permits has no room. A job that gets a position
--     opens an idle stream (an enqueue, the trigger on a job's row); a permit that gets room (the triggers on ended
--     jobs, a change of the limit, time) is marked in that transaction: freed, or opens_at.
--   * a permit with room whose streams no worker opens: an exchange opens the streams of a marked permit in their order
--     until it has as many of its own tasks and queues as the permit has room. If the permit then still has room and
--     blocks streams, the mark stays for the exchanges of other workers. So a stream that no worker serves, or whose
--     queue is paused, keeps no permit from others.
--   * a stream that needs several permits, beside streams that need one of them: places are kept for it
--     (outlast_claim_streams_v1.sql), under the same write lock, even if no worker serves the stream later.
--   * a clock that was set back: touched_at is then ahead of now, and the rate continues from now with the starts that
--     it had ahead of it (model/limits.py, seconds_ahead). "marked" finds permits that would otherwise wait for the old
--     time.
--
-- Streams are ordered by rank and turn. A stream that starts a job draws a new turn, behind all others.

-- name: marked
SELECT id, name, key FROM (SELECT id, name, key FROM outlast_permits INDEXED BY outlast_permits_freed WHERE freed = 1 LIMIT :most)
UNION
SELECT id, name, key FROM (SELECT id, name, key FROM outlast_permits INDEXED BY outlast_permits_opens
                      WHERE opens_at IS NOT NULL AND opens_at <= :now ORDER BY opens_at LIMIT :most)
UNION
SELECT id, name, key FROM (SELECT id, name, key FROM outlast_permits INDEXED BY outlast_permits_ahead
                      WHERE opens_at IS NOT NULL AND touched_at > :now + 1 LIMIT :most)
-- name: budgets
-- A permit without a row has not been used yet.
SELECT json_extract(e.value, '$[0]'), l.name IS NOT NULL, coalesce(p.own_running, l.running), l.spacing,
       coalesce(l.burst, 1.0), coalesce(p.used, 0), coalesce(p.tat, 0.0), coalesce(p.touched_at, 0.0),
       coalesce(p.held_until, 0.0), coalesce(l.held_until, 0.0), coalesce(p.opens_at, 0.0), p.kept_for,
       coalesce(p.kept_until, 0.0)
FROM json_each(:permits) AS e
LEFT JOIN outlast_permits AS p ON p.id = json_extract(e.value, '$[0]')
LEFT JOIN outlast_limits AS l ON l.name = json_extract(e.value, '$[1]')
-- name: blocked_streams
SELECT s.blocked, s.id, s.task, s.queue, CAST(s.needs AS TEXT),
       CASE WHEN :tenants = '[]' THEN 1 WHEN s.tenant IN (SELECT p.value FROM json_each(:tenants) AS p) THEN 0 ELSE EXISTS (
           SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
           WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.stream IS NOT NULL AND j.position IS NOT NULL
             AND (j.tenant IS NULL OR j.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))) END
FROM json_each(:permits) AS e CROSS JOIN outlast_streams AS s
WHERE s.id IN (
    SELECT n.id FROM outlast_streams AS n INDEXED BY outlast_streams_blocked
    WHERE n.blocked = e.value AND n.id NOT IN (SELECT o.value FROM json_each(:seen) AS o)
    ORDER BY n.rank, n.turn LIMIT :most)
ORDER BY e.key, s.rank, s.turn
-- name: open_streams
UPDATE outlast_streams SET blocked = NULL WHERE id IN (SELECT e.value FROM json_each(:streams) AS e)
-- name: lanes
WITH RECURSIVE lane (task, queue, number) AS (
    SELECT e.value, (SELECT n.queue FROM outlast_streams AS n INDEXED BY outlast_streams_open
                     WHERE n.blocked IS NULL AND n.idle = 0 AND n.task = e.value AND n.queue >= :first
                     ORDER BY n.queue LIMIT 1), 1
    FROM json_each(:tasks) AS e
    UNION ALL
    SELECT l.task, (SELECT n.queue FROM outlast_streams AS n INDEXED BY outlast_streams_open
                    WHERE n.blocked IS NULL AND n.idle = 0 AND n.task = l.task AND n.queue > l.queue
                    ORDER BY n.queue LIMIT 1), l.number + 1
    FROM lane AS l WHERE l.queue IS NOT NULL AND l.number < :most
)
SELECT json_group_array(json_array(queue, task)) FROM lane WHERE queue IS NOT NULL
-- name: lanes_of_queues
SELECT json_group_array(json_array(q.value, t.value))
FROM json_each(:queues) AS q CROSS JOIN json_each(:tasks) AS t
WHERE EXISTS (SELECT 1 FROM outlast_streams AS n INDEXED BY outlast_streams_open
              WHERE n.blocked IS NULL AND n.idle = 0 AND n.task = t.value AND n.queue = q.value)
-- name: first_streams
-- Read the first :most open streams of each of these lanes, [queue, task], of this kind (:solo; NULL: none is a
-- suspect), except streams in :passed, from which nothing could start, streams whose jobs are all passed over, and
-- ordered streams whose holder may not start here.
SELECT s.queue, s.rank, s.turn, s.id, CAST(s.needs AS TEXT), s.touched_at,
       h.id, h.id IS NOT NULL AND h.position IS NULL
FROM json_each(:lanes) AS e CROSS JOIN outlast_streams AS s
LEFT JOIN outlast_jobs AS h ON h.id = s.holder AND h.stream = s.id AND h.ended_at IS NULL
WHERE s.id IN (
    SELECT n.id FROM outlast_streams AS n INDEXED BY outlast_streams_open
    WHERE n.blocked IS NULL AND n.idle = 0 AND n.queue = json_extract(e.value, '$[0]')
      AND n.task = json_extract(e.value, '$[1]') AND n.id NOT IN (SELECT o.value FROM json_each(:passed) AS o)
      AND (:tenants = '[]' OR n.tenant IN (SELECT p.value FROM json_each(:tenants) AS p) IS NOT TRUE)
      AND (n.holder IS NULL OR NOT EXISTS (
          SELECT 1 FROM outlast_jobs AS j
          WHERE j.id = n.holder AND j.stream = n.id AND j.ended_at IS NULL AND j.position IS NOT NULL
            AND (j.solo <> coalesce(:solo, 0) OR j.tenant IN (SELECT p.value FROM json_each(:tenants) AS p))))
      AND (:tenants = '[]' AND :solo IS NULL OR :solo > 0 OR EXISTS (
          SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
          WHERE j.task = n.task AND j.queue = n.queue AND j.stream = n.id AND j.stream IS NOT NULL AND j.position IS NOT NULL
            AND j.solo = 0 AND (j.tenant IS NULL OR j.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))))
      AND (:solo > 0 IS NOT 1 OR EXISTS (
          SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_suspect
          WHERE j.task = n.task AND j.queue = n.queue AND j.stream = n.id AND j.position IS NOT NULL
            AND j.state = 'queued' AND j.solo > 0 AND j.solo = :solo
            AND (j.tenant IS NULL OR j.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))))
    ORDER BY n.rank, n.turn LIMIT :most)
-- name: first_of_streams
-- Read the first :most jobs of each of these streams, [stream, holder], or the holder alone if there is one, in the
-- columns of "first_of_lanes" and the columns that streams add.
SELECT json_group_array(json_array(
    rank, position, id, task, queue, CASE WHEN bytes <= :long THEN args END, attempt_count,
    failures, losses, policy, tenant, CASE WHEN bytes <= :long THEN checkpoint END, bytes, run_at,
    expires_at, true, solo, incident, needs, stream))
FROM (
    SELECT s.rank, j.position, coalesce(j.aged, j.position) AS place, j.id, j.task, j.queue, CAST(j.args AS TEXT) AS args,
           j.attempt_count, j.failures, j.losses, CAST(j.policy AS TEXT) AS policy,
           CAST(j.tenant AS TEXT) AS tenant, CAST(j.checkpoint AS TEXT) AS checkpoint,
           length(CAST(j.args AS BLOB)) + coalesce(length(CAST(j.checkpoint AS BLOB)), 0) AS bytes,
           j.run_at, j.expires_at, j.solo, j.incident, j.stream, CAST(j.needs AS TEXT) AS needs
    FROM json_each(:streams) AS e CROSS JOIN outlast_streams AS s CROSS JOIN outlast_jobs AS j
    WHERE s.id = json_extract(e.value, '$[0]') AND j.id IN (
        SELECT n.id FROM outlast_jobs AS n
        WHERE n.id = json_extract(e.value, '$[1]') AND n.position IS NOT NULL AND n.stream = s.id
          AND n.solo = :solo
          AND (:tenants = '[]' OR EXISTS (
              SELECT 1 FROM outlast_jobs AS t
              WHERE t.id = n.id AND (t.tenant IS NULL OR t.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))))
        UNION ALL
        SELECT f.id FROM (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_stream
        WHERE n.position IS NOT NULL AND n.stream IS NOT NULL AND n.task = s.task AND n.queue = s.queue
          AND n.stream = s.id AND json_extract(e.value, '$[1]') IS NULL AND n.solo = 0 AND :solo = 0
          AND (:tenants = '[]' OR EXISTS (
              SELECT 1 FROM outlast_jobs AS t
              WHERE t.id = n.id AND (t.tenant IS NULL OR t.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))))
        ORDER BY coalesce(n.aged, n.position) LIMIT :most) AS f
        UNION ALL
        SELECT f.id FROM (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_suspect
        WHERE n.state = 'queued' AND n.solo > 0 AND n.solo = :solo AND n.task = s.task AND n.queue = s.queue
          AND n.stream = s.id AND n.position IS NOT NULL AND json_extract(e.value, '$[1]') IS NULL
          AND (n.tenant IS NULL OR n.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))
        ORDER BY -n.priority, n.position LIMIT :most) AS f)
    ORDER BY j.stream, place)
-- name: note_looks
-- Write the new state of the checked streams, [id, turn, blocked, holder]. A stream without a job that has a position
-- is idle; jobs that were passed over keep a stream open. Nothing is written about a stream that stays as it is: a
-- commit would wake all workers.
UPDATE outlast_streams AS s
SET turn = json_extract(e.value, '$[1]'),
    touched_at = CASE WHEN e.waits AND s.turn = json_extract(e.value, '$[1]') THEN min(s.touched_at, :now) ELSE :now END,
    holder = json_extract(e.value, '$[3]'), blocked = CASE WHEN e.waits THEN json_extract(e.value, '$[2]') END, idle = NOT e.waits
FROM (SELECT value, json_extract(value, '$[2]') IS -2 OR EXISTS (SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
                            WHERE j.task = o.task AND j.queue = o.queue AND j.stream = o.id
                              AND j.stream IS NOT NULL AND j.position IS NOT NULL) AS waits
      FROM json_each(:streams) CROSS JOIN outlast_streams AS o WHERE o.id = json_extract(value, '$[0]')) AS e
WHERE s.id = json_extract(e.value, '$[0]')
  AND (s.holder IS NOT json_extract(e.value, '$[3]') OR s.turn <> json_extract(e.value, '$[1]') OR json_extract(e.value, '$[2]') IS NOT NULL OR NOT e.waits)
RETURNING id
-- name: write_permits
-- Write permits, [id, name, key, used, tat, held until, opens at, has room, kept for, kept until]. A permit that still
-- has room stays marked while it blocks a stream that this exchange has not checked; opens_at is kept only where
-- streams wait for it.
INSERT INTO outlast_permits AS p (id, name, key, used, tat, touched_at, held_until, opens_at, freed, kept_for, kept_until)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), :now, json_extract(value, '$[5]'),
       CASE WHEN EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = json_extract(value, '$[0]'))
            THEN json_extract(value, '$[6]') END,
       json_extract(value, '$[7]') AND EXISTS (
           SELECT 1 FROM outlast_streams AS s
           WHERE s.blocked = json_extract(value, '$[0]') AND s.id NOT IN (SELECT o.value FROM json_each(:seen) AS o)),
       json_extract(value, '$[8]'), json_extract(value, '$[9]')
FROM json_each(:permits) WHERE true
ON CONFLICT (id) DO UPDATE
SET used = excluded.used, tat = excluded.tat, touched_at = excluded.touched_at, held_until = excluded.held_until,
    opens_at = excluded.opens_at, freed = excluded.freed, kept_for = excluded.kept_for, kept_until = excluded.kept_until
-- name: next_opening
-- Return when the first permit opens that blocks streams of these tasks. At most 100 permits are read, the first to
-- open, and the 100 streams that each opens first; other workers, or a later call, see the rest.
SELECT min(p.opens_at)
FROM (SELECT id, opens_at FROM outlast_permits INDEXED BY outlast_permits_opens
      WHERE opens_at IS NOT NULL ORDER BY opens_at LIMIT 100) AS p
WHERE EXISTS (
    SELECT 1 FROM (SELECT s.task FROM outlast_streams AS s INDEXED BY outlast_streams_blocked
                   WHERE s.blocked = p.id ORDER BY s.rank, s.turn LIMIT 100) AS b
    WHERE b.task IN (SELECT t.value FROM json_each(:tasks) AS t))

-- name: wrong
SELECT p.id, p.name, p.key, p.used, coalesce(h.holders, 0)
FROM outlast_permits AS p LEFT JOIN (
    SELECT json_extract(j.needs, e.fullkey || '[0]') AS permit, count(*) AS holders
    FROM outlast_jobs AS j INDEXED BY outlast_jobs_worker CROSS JOIN json_each(j.needs) AS e
    WHERE j.worker_id IS NOT NULL AND j.stream IS NOT NULL GROUP BY 1) AS h ON h.permit = p.id
WHERE p.used <> coalesce(h.holders, 0) AND p.touched_at < :now - :settled
  AND EXISTS (SELECT 1 FROM outlast_streams AS s INDEXED BY outlast_streams_blocked WHERE s.blocked = p.id)
LIMIT 1000
-- name: recount
UPDATE outlast_permits SET used = :used, freed = 1, touched_at = :now WHERE id = :permit
-- name: mark_recounted
UPDATE outlast_limits SET recounted_at = :now WHERE name = :name
-- name: known
-- Declare, set and hold limits, and take spent cost. These statements run under the write lock, so no exchange reads a
-- permit between the change and its mark.
SELECT name, CAST(declared AS TEXT) AS declared, CAST(own AS TEXT) AS own FROM outlast_limits
WHERE name IN (SELECT value FROM json_each(:names))
-- name: known_tasks
SELECT name, CAST(limits AS TEXT), fair, aging, priority FROM outlast_tasks WHERE name IN (SELECT value FROM json_each(:names))
-- name: declare_task
INSERT INTO outlast_tasks (name, limits, fair, aging, priority) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET limits = excluded.limits, fair = excluded.fair, aging = excluded.aging, priority = excluded.priority
-- name: lock
SELECT 1 AS locked
-- name: keep_pace
UPDATE outlast_permits AS p
SET tat = min(1e15, max(:now, p.touched_at)
                    + (p.tat - max(:now, p.touched_at)) * coalesce(json_extract(e.value, '$[3]') / l.spacing, 0))
FROM json_each(:rows) AS e JOIN outlast_limits AS l ON l.name = json_extract(e.value, '$[0]')
WHERE p.name = l.name AND l.spacing IS NOT json_extract(e.value, '$[3]') AND p.tat > max(:now, p.touched_at)
-- name: put
INSERT INTO outlast_limits (name, declared, running, spacing, burst, per)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
       json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM json_each(:rows) WHERE true
ON CONFLICT (name) DO UPDATE
SET declared = coalesce(excluded.declared, declared), running = excluded.running, spacing = excluded.spacing,
    burst = excluded.burst, per = excluded.per
-- name: set
UPDATE outlast_limits SET own = :own WHERE name = :name
-- name: mark
UPDATE outlast_permits SET freed = 1, opens_at = NULL
WHERE name IN (SELECT value FROM json_each(:names)) AND EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
-- name: mark_one
UPDATE outlast_permits SET freed = 1, opens_at = NULL
WHERE id = :permit AND EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.blocked = outlast_permits.id)
-- name: make_permit
INSERT INTO outlast_permits (id, name, key) VALUES (:permit, :name, :key) ON CONFLICT (id) DO NOTHING
-- name: hold
UPDATE outlast_permits
SET held_until = iif(:seconds > 0, :now + :seconds, NULL), tat = :now + max(0.0, tat - max(:now, touched_at)), touched_at = :now
WHERE id = :permit
-- name: hold_longer
UPDATE outlast_permits
SET held_until = max(:until, coalesce(:now + held_until - max(:now, touched_at), :until)),
    tat = :now + max(0.0, tat - max(:now, touched_at)), touched_at = :now
WHERE id = :permit
-- name: hold_all
UPDATE outlast_limits SET held_until = iif(:seconds > 0, :now + :seconds, NULL), held_for = :seconds WHERE name = :name
-- name: held_too_long
SELECT name, held_for FROM outlast_limits WHERE held_until > :now + held_for + 1
-- name: needs
SELECT CAST(needs AS TEXT) FROM outlast_jobs WHERE id = :job_id AND token = :token AND state = 'running'
-- name: needs_of_job
SELECT CAST(needs AS TEXT) FROM outlast_jobs WHERE id = :job_id
-- name: rate
SELECT p.tat, p.touched_at, l.spacing FROM outlast_permits AS p JOIN outlast_limits AS l ON l.name = p.name
WHERE p.id = :permit
-- name: spend
-- A stream that the permit blocks for its rate is checked when the permit would have opened, and waits on; at once, if
-- the clock was set back.
UPDATE outlast_permits
SET tat = :tat, held_until = :now + held_until - max(:now, touched_at), touched_at = :now, opens_at = CASE WHEN touched_at > :now + 1 THEN :now ELSE opens_at END
WHERE id = :permit

-- name: count_running
WITH r AS MATERIALIZED (
    SELECT stream, needs FROM outlast_jobs INDEXED BY outlast_jobs_worker WHERE worker_id IS NOT NULL LIMIT :rows)
SELECT json_extract(r.needs, e.fullkey || '[1]') AS name, count(*) AS number, (SELECT count(*) FROM r) AS looked_at
FROM r CROSS JOIN json_each(r.needs) AS e WHERE r.stream IS NOT NULL GROUP BY 1
-- name: count_blocked
SELECT count(id) AS number, count(*) AS looked_at FROM (
    SELECT j.id
    FROM json_each(:permits) AS p CROSS JOIN outlast_streams AS s INDEXED BY outlast_streams_blocked ON s.blocked = p.value
    LEFT JOIN outlast_jobs AS j INDEXED BY outlast_jobs_stream
        ON j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.stream IS NOT NULL AND j.position IS NOT NULL
    LIMIT :most)
-- name: count_in_order
WITH b AS MATERIALIZED (
    SELECT s.needs, j.id FROM outlast_streams AS s INDEXED BY outlast_streams_blocked
    LEFT JOIN outlast_jobs AS j INDEXED BY outlast_jobs_stream
        ON j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.stream IS NOT NULL AND j.position IS NOT NULL
    WHERE s.blocked = -2 LIMIT :most)
SELECT json_extract(b.needs, e.fullkey || '[1]') AS name, count(b.id) AS number, (SELECT count(*) FROM b) AS looked_at
FROM b CROSS JOIN json_each(b.needs) AS e WHERE json_extract(b.needs, e.fullkey || '[4]') = 1 GROUP BY 1
-- name: permits
WITH looked (id) AS MATERIALIZED (
    SELECT id FROM (SELECT p.id FROM outlast_permits AS p INDEXED BY outlast_permits_name WHERE p.name = :name LIMIT :most)
    UNION
    SELECT json_extract(j.needs, e.fullkey || '[0]')
    FROM (SELECT stream, needs FROM outlast_jobs INDEXED BY outlast_jobs_worker WHERE worker_id IS NOT NULL LIMIT :rows) AS j
    CROSS JOIN json_each(j.needs) AS e WHERE j.stream IS NOT NULL
    UNION
    SELECT value FROM json_each(:blocking)
)
SELECT p.id, p.name, p.key, coalesce(p.own_running, l.running) AS running, p.used, 0 AS noted, p.tat,
       max(coalesce(l.held_until, p.held_until), coalesce(p.held_until, l.held_until)) AS held_until,
       nullif(p.opens_at, p.kept_until) AS opens_at,
       (SELECT count(*) FROM (
            SELECT 1 FROM outlast_streams AS s INDEXED BY outlast_streams_blocked
            CROSS JOIN outlast_jobs AS j INDEXED BY outlast_jobs_stream
                ON j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                AND j.stream IS NOT NULL AND j.position IS NOT NULL
            WHERE s.blocked = p.id LIMIT :waiting)) AS waiting
FROM (SELECT o.* FROM looked CROSS JOIN outlast_permits AS o ON o.id = looked.id
      WHERE o.name = :name ORDER BY o.used DESC, o.key LIMIT :most) AS p
LEFT JOIN outlast_limits AS l ON l.name = p.name
ORDER BY p.used DESC, p.key
-- name: permit
SELECT p.id, p.name, p.key, coalesce(p.own_running, l.running) AS running, p.used, 0 AS noted, p.tat,
       p.held_until, nullif(p.opens_at, p.kept_until) AS opens_at
FROM outlast_permits AS p LEFT JOIN outlast_limits AS l ON l.name = p.name
WHERE p.id = :permit
-- name: stream_place
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_stream
            WHERE o.position IS NOT NULL AND o.stream IS NOT NULL AND o.task = j.task AND o.queue = j.queue
              AND o.stream = j.stream AND coalesce(o.aged, o.position) < coalesce(j.aged, j.position)
            LIMIT :most)) AS ahead,
       s.blocked, CASE WHEN s.blocked = -2 THEN s.holder END AS holder, CAST(j.needs AS TEXT) AS needs
FROM outlast_jobs AS j JOIN outlast_streams AS s ON s.id = j.stream
WHERE j.id = :id AND j.stream IS NOT NULL AND j.position IS NOT NULL
-- name: holders
SELECT j.id, coalesce(w.name, '') AS worker, :now - j.started_at AS seconds
FROM outlast_jobs AS j INDEXED BY outlast_jobs_worker LEFT JOIN outlast_workers AS w ON w.id = j.worker_id
WHERE j.worker_id IS NOT NULL AND j.stream IS NOT NULL
  AND EXISTS (SELECT 1 FROM json_each(j.needs) AS e WHERE json_extract(j.needs, e.fullkey || '[0]') = :permit)
ORDER BY j.started_at, j.token LIMIT :most
-- name: miscounted
SELECT p.name, p.key, p.used AS counted, coalesce(h.holders, 0) AS holders
FROM outlast_permits AS p LEFT JOIN (
    SELECT json_extract(j.needs, e.fullkey || '[0]') AS permit, count(*) AS holders
    FROM outlast_jobs AS j INDEXED BY outlast_jobs_worker CROSS JOIN json_each(j.needs) AS e
    WHERE j.worker_id IS NOT NULL AND j.stream IS NOT NULL GROUP BY 1) AS h ON h.permit = p.id
WHERE p.used <> coalesce(h.holders, 0)
ORDER BY p.name, p.key LIMIT :most
-- name: forgotten
-- `miscounted` and `forgotten` are for `outlast verify`; postgres/sql/limits.sql says which rows they find.
SELECT DISTINCT j.task, j.queue, NULL AS name, NULL AS key
FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
WHERE j.position IS NOT NULL AND j.stream IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM outlast_streams AS s WHERE s.id = j.stream AND s.task = j.task AND s.queue = j.queue)
UNION ALL
SELECT s.task, s.queue, p.name, p.key
FROM outlast_streams AS s LEFT JOIN outlast_permits AS p ON p.id = s.blocked
LEFT JOIN outlast_limits AS l ON l.name = p.name
WHERE EXISTS (SELECT 1 FROM outlast_jobs AS j INDEXED BY outlast_jobs_stream
              WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                AND j.stream IS NOT NULL AND j.position IS NOT NULL)
  AND (s.idle OR s.blocked = -2 AND NOT EXISTS (
           SELECT 1 FROM outlast_jobs AS h
           WHERE h.id = s.holder AND h.stream = s.id AND h.ended_at IS NULL AND h.position IS NULL)
       OR s.blocked <> -2 AND p.id IS NULL
       OR s.blocked IS NOT NULL AND p.freed = 0 AND l.name IS NOT NULL
       AND (p.opens_at IS NULL OR p.opens_at > 1 + max(p.tat, coalesce(p.kept_until, 0), :now))
       AND p.used < coalesce(p.own_running, l.running, 2147483647)
       AND coalesce(p.held_until, 0) <= :now AND coalesce(l.held_until, 0) <= :now
       AND (l.spacing IS NULL OR NOT EXISTS (
           SELECT 1 FROM json_each(s.needs) AS e
           WHERE json_extract(s.needs, e.fullkey || '[0]') = p.id
             AND coalesce(json_extract(s.needs, e.fullkey || '[3]'), 1) > l.burst))
       AND NOT EXISTS (SELECT 1 FROM outlast_streams AS o CROSS JOIN json_each(o.needs) AS e
                       WHERE o.blocked IS NULL AND o.idle = 0
                         AND json_extract(o.needs, e.fullkey || '[0]') = p.id))
ORDER BY task, queue LIMIT :most
