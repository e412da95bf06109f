-- Limits: declared, set, held and spent; and reads for people. functions/NAME.sql argues why a call of a function is
-- right against a concurrent claim, fold, reap and late worker.

-- name: known
-- Read limits before they are changed. Reads only.
SELECT name, declared, own FROM outlast_limits WHERE name = ANY (:names::text[])

-- name: known_tasks
-- Read tasks before they are declared: most are known as they are. Reads only.
SELECT name, limits, fair, aging, priority FROM outlast_tasks WHERE name = ANY ($1::text[])

-- name: declare_tasks
-- Rows are locked in the order of their names: if two workers have the same tasks, the second waits for the first.
INSERT INTO outlast_tasks (name, limits, fair, aging, priority)
SELECT u.* FROM unnest($1::text[], $2::text[], $3::text::boolean[], $4::text::float8[], $5::text::smallint[])
    AS u (name, limits, fair, aging, priority)
ORDER BY u.name COLLATE "C"
ON CONFLICT (name) DO UPDATE
SET limits = excluded.limits, fair = excluded.fair, aging = excluded.aging, priority = excluded.priority

-- name: lock
-- Take the keeper lock before limits are changed: everything that exchanges have counted and blocked is committed then.
-- Of two changes at once, the second waits here, and then reads the commit of the first.
SELECT outlast_lock_keeper_v1(NULL)

-- name: lock_holders
-- List the sessions that hold a lock without which jobs under limits do not start or (if $1) counters are not added up.
-- Every role that may connect can take such a lock and block the others. So a session whose role may change no limit is
-- listed at once, and one whose role may is listed after $2 seconds of its transaction, if this role may see that.
-- Locks belong to no snapshot.
SELECT l.lock, l.backend AS process, pg_get_userbyid(l.role)::text AS role, l.application, m.may_work,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
FROM (SELECT DISTINCT ON (k.lock, l.backend) k.lock, l.backend, l.role, l.application
      FROM (SELECT 'the lock under which jobs under limits start' AS lock, outlast_keeper_lock_v1() AS key
            UNION ALL
            SELECT 'the lock under which counters are added up', hashtextextended('outlast:minutes', 0::bigint)
            WHERE $1::boolean) k
      JOIN outlast_locks_v1() l ON l.key = k.key) l
CROSS JOIN LATERAL (SELECT has_table_privilege(l.role, 'outlast_limits', 'UPDATE') AS may_work) m
LEFT JOIN pg_stat_get_activity(l.backend) a ON true
WHERE NOT m.may_work OR clock_timestamp() - a.xact_start >= $2::float8 * interval '1 second'
ORDER BY m.may_work, l.backend, l.lock LIMIT 5

-- name: lock_in_time
SELECT outlast_lock_keeper_v1(0.5) AS is_mine

-- name: put
SELECT outlast_put_limits_v1($1, $2, $3, $4::text::integer[], $5::text::float8[], $6::text::float8[], $7)

-- name: make_permit
-- The transaction has the keeper lock, as in the statements below, so no other session makes or prunes the row.
INSERT INTO outlast_permits (id, name, key, touched_at)
SELECT :permit, :name, :key, date_part('epoch', clock_timestamp())
WHERE NOT EXISTS (SELECT FROM outlast_permits p WHERE p.id = :permit)

-- name: hold
-- A person's hold replaces all earlier ones, including holds by tasks that no exchange has folded yet.
WITH forgotten AS (UPDATE outlast_notices SET held_until = NULL WHERE permit = :permit AND held_until IS NOT NULL)
UPDATE outlast_permits p
SET held_until = CASE WHEN :seconds::float8 > 0 THEN n.now + :seconds END,
    tat = n.now + greatest(0, p.tat - greatest(n.now, p.touched_at)), touched_at = n.now
FROM (SELECT date_part('epoch', clock_timestamp()) AS now) n WHERE p.id = :permit

-- name: hold_all
-- Hold all permits of a limit. The transaction has the keeper lock.
UPDATE outlast_limits
SET held_until = CASE WHEN :seconds::float8 > 0 THEN date_part('epoch', clock_timestamp()) + :seconds END, held_for = :seconds
WHERE name = :name

-- name: mark
-- Leave a notice for each permit of these limits that blocks streams, so that an exchange checks it again.
INSERT INTO outlast_notices (permit)
SELECT p.id FROM outlast_permits p
WHERE p.name = ANY (:names::text[]) AND EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id)

-- name: mark_one
-- As `mark`, for one permit.
INSERT INTO outlast_notices (permit) VALUES (:permit)

-- name: spend
-- Guarded by (id, token, running): an attempt that was closed or taken over notes nothing. The row is read without a
-- lock: an end that commits at the same moment counts as just before or just after. The next exchange folds the notice.
WITH asked AS (
    SELECT n.permit FROM outlast_jobs j CROSS JOIN LATERAL outlast_needs_v1(j.needs) w
    LEFT JOIN LATERAL unnest(w.permits, w.names) AS n (permit, name) ON n.name = $3::text
    WHERE j.id = $1::bigint AND j.token = $2::bigint AND j.state = 'running'
), spent AS (
    INSERT INTO outlast_notices (permit, spent) SELECT a.permit, least(1e9, greatest(1e-6, $4::float8)) FROM asked a WHERE a.permit IS NOT NULL
)
SELECT permit FROM asked

-- name: recount
SELECT name, key, counted, holders FROM outlast_recount_v1($1)

-- name: judge
SELECT answer FROM outlast_judge_v1(ARRAY[$1::bigint], ARRAY[$2::bigint], ARRAY[NULL::text], 'spend', $3)

-- name: count_running
-- Count the attempts that run under each limit, among the first :rows running jobs. Streams and permits are read one by
-- one, by id: LIMIT rules out plans that read all of them.
WITH r AS MATERIALIZED (SELECT stream FROM outlast_jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT :rows)
SELECT p.name, sum(c.number)::bigint AS number, (SELECT count(*) FROM r) AS looked_at
FROM (SELECT stream, count(*) AS number FROM r WHERE stream IS NOT NULL GROUP BY stream) c
CROSS JOIN LATERAL (SELECT s.permits FROM outlast_streams s WHERE s.id = c.stream LIMIT 1) s
CROSS JOIN LATERAL unnest(s.permits) AS n (permit)
CROSS JOIN LATERAL (SELECT p.name FROM outlast_permits p WHERE p.id = n.permit LIMIT 1) p
GROUP BY p.name

-- name: count_blocked
-- Count the due jobs of the streams that these permits block. looked_at: the rows that were read by index, :most at
-- most: the jobs, and a row for each stream that has none.
SELECT count(b.id) AS number, count(*) AS looked_at
FROM (SELECT j.id
      FROM unnest(:permits::text::bigint[]) AS u (permit)
      CROSS JOIN LATERAL (
          SELECT s.id, s.task, s.queue FROM outlast_streams s WHERE s.blocked = u.permit
          ORDER BY s.blocked, s.rank, s.turn LIMIT :most) s
      LEFT JOIN LATERAL (
          SELECT o.id FROM outlast_jobs o
          WHERE o.task = s.task AND o.queue = s.queue AND o.stream = s.id AND o.position IS NOT NULL
          ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT :most) j ON true
      LIMIT :most) b

-- name: count_in_order
-- As count_blocked, for ordered limits: the due jobs of streams that wait for a job that has begun (-2), in :most rows.
WITH b AS MATERIALIZED (
    SELECT s.permits, j.id
    FROM (SELECT * FROM outlast_streams s WHERE s.blocked = -2 ORDER BY s.blocked, s.rank, s.turn LIMIT :most) s
    LEFT JOIN LATERAL (
        SELECT o.id FROM outlast_jobs o
        WHERE o.task = s.task AND o.queue = s.queue AND o.stream = s.id AND o.position IS NOT NULL
        ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT :most) j ON true
    LIMIT :most)
SELECT p.name, count(b.id) AS number, (SELECT count(*) FROM b) AS looked_at
FROM b CROSS JOIN LATERAL unnest(b.permits) AS n (permit)
CROSS JOIN LATERAL (SELECT p.name FROM outlast_permits p WHERE p.id = n.permit LIMIT 1) p
JOIN outlast_limits l ON l.name = p.name AND l.declared LIKE '%"ordered"%'
GROUP BY p.name

-- name: permits
-- Read permits of a limit, :most at most, the permits with the most running attempts first: chosen from :most found by
-- the limit's name, those of the first :rows running jobs, and :blocking. noted: ends that no exchange has folded yet;
-- one snapshot, so used - noted is the number of running attempts. waiting: counted up to :waiting.
WITH looked AS MATERIALIZED (
    (SELECT o.id FROM outlast_permits o WHERE o.name = :name LIMIT :most)
    UNION
    SELECT n.permit
    FROM (SELECT DISTINCT j.stream FROM (SELECT stream FROM outlast_jobs WHERE worker_id IS NOT NULL
                                         ORDER BY worker_id LIMIT :rows) j) j
    CROSS JOIN LATERAL (SELECT s.permits FROM outlast_streams s WHERE s.id = j.stream LIMIT 1) s
    CROSS JOIN LATERAL unnest(s.permits) AS n (permit)
    UNION
    SELECT u FROM unnest(:blocking::text::bigint[]) AS u
), noted AS MATERIALIZED (
    SELECT n.permit, sum(e.ended)::bigint AS ended
    FROM (SELECT * FROM outlast_notices ORDER BY id DESC LIMIT 10000) e
    CROSS JOIN LATERAL (SELECT s.permits FROM outlast_streams s WHERE s.id = e.stream LIMIT 1) s
    CROSS JOIN LATERAL unnest(s.permits) AS n (permit)
    WHERE e.ended <> 0 GROUP BY n.permit)
SELECT p.id, p.name, p.key, coalesce(p.own_running, l.running) AS running, p.used, p.tat,
       nullif(p.opens_at, p.kept_until) AS opens_at,
       p.held_until, coalesce(n.ended, 0) AS noted,
       (SELECT count(*) FROM (
            SELECT FROM (SELECT * FROM outlast_streams s WHERE s.blocked = p.id
                         ORDER BY s.blocked, s.rank, s.turn LIMIT :waiting) s
            CROSS JOIN LATERAL (
                SELECT FROM outlast_jobs o
                WHERE o.task = s.task AND o.queue = s.queue AND o.stream = s.id AND o.position IS NOT NULL
                ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT :waiting) j
            LIMIT :waiting) c) AS waiting
FROM (SELECT o.* FROM looked
      CROSS JOIN LATERAL (SELECT * FROM outlast_permits o WHERE o.id = looked.id LIMIT 1) o
      WHERE o.name = :name ORDER BY o.used DESC, o.id LIMIT :most) p
LEFT JOIN outlast_limits l ON l.name = p.name LEFT JOIN noted n ON n.permit = p.id
ORDER BY p.used DESC, p.id

-- name: permit
-- As in `permits`, without the waiting jobs.
SELECT p.id, p.name, p.key, coalesce(p.own_running, l.running) AS running, p.used, p.tat,
       nullif(p.opens_at, p.kept_until) AS opens_at,
       p.held_until,
       coalesce((SELECT sum(n.ended)::bigint FROM (SELECT * FROM outlast_notices ORDER BY id DESC LIMIT 10000) n
                 JOIN outlast_streams s ON s.id = n.stream
                 WHERE n.ended <> 0 AND p.id = ANY (s.permits)), 0) AS noted
FROM outlast_permits p LEFT JOIN outlast_limits l ON l.name = p.name
WHERE p.id = :permit

-- name: stream_place
-- Show a job's place in its stream, in numbers up to :most; no row: the job is in no stream now.
SELECT (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.task = j.task AND o.queue = j.queue AND o.stream = j.stream AND o.position IS NOT NULL
              AND coalesce(o.aged, o.position) < coalesce(j.aged, j.position)
            ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT :most) c) AS ahead,
       s.blocked, CASE WHEN s.blocked = -2 THEN s.holder END AS holder, j.needs
FROM outlast_jobs j LEFT JOIN outlast_streams s ON s.id = j.stream
WHERE j.id = :id AND j.position IS NOT NULL AND j.stream IS NOT NULL

-- name: holders
-- List the running jobs under a permit, longest-running first, :most at most, among 20,000 running jobs.
SELECT j.id, w.name AS worker, date_part('epoch', statement_timestamp()) - j.started_at AS seconds
FROM (SELECT id, stream, worker_id, started_at FROM outlast_jobs WHERE worker_id IS NOT NULL
      ORDER BY worker_id LIMIT 20000) j
JOIN outlast_streams s ON s.id = j.stream AND :permit = ANY (s.permits)
LEFT JOIN outlast_workers w ON w.id = j.worker_id
ORDER BY j.started_at, j.id LIMIT :most

-- name: miscounted
-- Find permits whose count (used, less the noted ends) differs from the number of running attempts under them, in one
-- snapshot. Reads all running jobs and all notices, for `outlast verify`.
WITH held AS MATERIALIZED (
    SELECT n.permit, count(*) AS holders
    FROM outlast_jobs j JOIN outlast_streams s ON s.id = j.stream CROSS JOIN LATERAL unnest(s.permits) AS n (permit)
    WHERE j.worker_id IS NOT NULL AND j.stream IS NOT NULL GROUP BY n.permit
), noted AS MATERIALIZED (
    SELECT n.permit, sum(e.ended) AS ended
    FROM outlast_notices e JOIN outlast_streams s ON s.id = e.stream CROSS JOIN LATERAL unnest(s.permits) AS n (permit)
    GROUP BY n.permit)
SELECT p.name, p.key, p.used - coalesce(n.ended, 0)::bigint AS counted, coalesce(h.holders, 0) AS holders
FROM outlast_permits p FULL JOIN held h ON h.permit = p.id LEFT JOIN noted n ON n.permit = p.id
WHERE coalesce(p.used, 0) - coalesce(n.ended, 0) <> coalesce(h.holders, 0)
ORDER BY p.name, p.key LIMIT :most

-- name: forgotten
-- Find streams with due jobs that no exchange would open: the stream is idle, or its floor is above one of them, or it
-- is blocked by a permit that is missing, or that has room, without a notice, a near instant at which it opens, or an
-- open stream that needs it. Find also due jobs that name the stream of another task, or a missing one, jobs of the line
-- whose lane is missing, and jobs that no request asks for, or that are due at no time. In one snapshot, for `outlast
-- verify`.
SELECT j.task, j.queue, NULL AS name, NULL AS key
FROM outlast_jobs j
WHERE j.position IS NOT NULL AND j.stream IS NULL AND j.solo <= 0
  AND NOT EXISTS (SELECT FROM outlast_lanes l WHERE l.task = j.task AND l.queue = j.queue AND l.priority = j.priority)
  OR j.state = 'queued' AND (j.solo > 2 OR j.position < 1 OR j.run_at > 1e15)
UNION
SELECT j.task, j.queue, NULL, NULL
FROM outlast_jobs j
WHERE j.position IS NOT NULL AND j.stream IS NOT NULL
  AND NOT EXISTS (SELECT FROM outlast_streams s WHERE s.id = j.stream AND s.task = j.task AND s.queue = j.queue)
  AND NOT EXISTS (SELECT FROM outlast_notices n WHERE n.stream = j.stream)
UNION ALL
SELECT s.task, s.queue, p.name, p.key
FROM outlast_streams s LEFT JOIN outlast_permits p ON p.id = s.blocked LEFT JOIN outlast_limits l ON l.name = p.name
WHERE EXISTS (SELECT FROM outlast_jobs j
              WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                AND j.position IS NOT NULL)
  AND NOT EXISTS (SELECT FROM outlast_notices n WHERE n.stream = s.id OR n.permit = s.blocked)
  AND (s.idle OR EXISTS (
           SELECT FROM outlast_jobs j
           WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
             AND coalesce(j.aged, j.position) < s.floor)
       OR s.blocked = -2 AND NOT EXISTS (
           SELECT FROM outlast_jobs h
           WHERE h.id = s.holder AND h.stream = s.id AND h.ended_at IS NULL AND h.position IS NULL)
       OR s.blocked <> -2 AND p.id IS NULL
       OR s.blocked IS NOT NULL
       AND (p.opens_at IS NULL OR p.opens_at > 1 + greatest(p.tat, p.kept_until, date_part('epoch', statement_timestamp())))
       AND p.used < coalesce(p.own_running, l.running, 2147483647) AND l.name IS NOT NULL
       AND greatest(p.held_until, l.held_until, 0) <= date_part('epoch', statement_timestamp())
       AND s.costs[array_position(s.permits, p.id)] <= CASE WHEN l.spacing IS NULL THEN 1e9 ELSE l.burst END
       AND NOT EXISTS (SELECT FROM outlast_notices n JOIN outlast_streams o ON o.id = n.stream
                       WHERE p.id = ANY (o.permits))
       AND NOT EXISTS (SELECT FROM outlast_streams o
                       WHERE o.blocked IS NULL AND NOT o.idle AND p.id = ANY (o.permits)))
ORDER BY task, queue LIMIT :most
