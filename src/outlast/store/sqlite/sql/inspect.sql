-- Reads for people and screens, without locks; in WAL mode no writer waits for them. Each statement uses the index that
-- it names. postgres/sql/inspect.sql says what each one means.

-- name: search
-- Return one row for each of these jobs, in their order. The caller stops fetching when the arguments read so far are
-- too long.
SELECT j.id, CASE WHEN :args IS NULL THEN 0 ELSE length(CAST(j.args AS BLOB)) END,
      (:args IS NULL OR instr(lower(j.args), lower(:args)) > 0 AND j.args NOT LIKE ' ["outlast:payload",%')
  AND (:within IS NULL OR coalesce(j.ended_at, j.started_at, j.requeued_at, j.enqueued_at) >= :now - :within)
  AND (:error IS NULL
       OR instr(lower((SELECT outcome || ': ' || message FROM outlast_attempts WHERE job_id = j.id
                       ORDER BY number DESC, token DESC LIMIT 1)), lower(:error)) > 0)
FROM json_each(:ids) AS wanted CROSS JOIN outlast_jobs AS j
WHERE j.id = wanted.value
-- name: children
SELECT c.n, c.id, c.task, c.state, c.result
FROM (SELECT 0 - d.place AS n, d.upstream_id AS id, j.task, j.state, CAST(j.result AS TEXT) AS result,
             sum(coalesce(length(CAST(j.result AS BLOB)), 0)) OVER (ORDER BY d.place DESC) AS bytes
      FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
      WHERE d.job_id = :job_id AND d.place BETWEEN 0 - :last AND 0 - :first) c
WHERE c.bytes <= :bytes OR c.n = :first ORDER BY c.n
-- name: token_last
SELECT value AS token FROM outlast_sequences WHERE name = 'token'
-- name: returns
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
WITH RECURSIVE up (id) AS (
    SELECT upstream_id FROM outlast_dependencies WHERE job_id = :job_id AND state <> 2 AND state < 2
    UNION
    SELECT d.upstream_id FROM up JOIN outlast_dependencies d ON d.job_id = up.id AND d.state <> 2 AND d.state < 2
    UNION
    SELECT h.id FROM up CROSS JOIN outlast_jobs AS o ON o.id = up.id CROSS JOIN outlast_streams AS s ON s.id = o.stream
    CROSS JOIN outlast_jobs AS h ON h.id = s.holder AND h.stream = s.id
    WHERE o.ended_at IS NULL AND h.ended_at IS NULL)
SELECT EXISTS (SELECT 1 FROM (SELECT id FROM up LIMIT :most) AS f WHERE f.id = :job_id) AS found
-- name: steps
SELECT CAST(name AS TEXT) AS name, token, at AS at, length(CAST(value AS BLOB)) AS bytes FROM outlast_steps WHERE job_id = :job_id ORDER BY at, name

-- name: waiting
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
-- postgres/sql/functions/outlast_wanted_v1.sql defines which jobs count. Each statement stops at :most rows.
SELECT kind, name FROM outlast_pauses
-- name: wanted_workers
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
SELECT max(count(*) FILTER (WHERE tenant IS NULL OR tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p)),
           count(*) >= :most) AS number
FROM (SELECT tenant FROM outlast_jobs INDEXED BY outlast_jobs_line
      WHERE position IS NOT NULL AND stream IS NULL AND task = :task AND queue = :queue LIMIT :most)
-- name: wanted_streams
SELECT id, task, CAST(needs AS TEXT) AS needs FROM outlast_streams INDEXED BY outlast_streams_open
WHERE blocked IS NULL AND idle = 0 AND queue = :queue
  AND (tenant IS NULL OR tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p)) LIMIT :most
-- name: wanted_of_stream
SELECT count(*) AS number FROM (
    SELECT 1 FROM (
        SELECT tenant FROM outlast_jobs INDEXED BY outlast_jobs_stream
        WHERE task = :task AND queue = :queue AND stream = :stream AND stream IS NOT NULL AND position IS NOT NULL LIMIT :most)
    WHERE tenant IS NULL OR tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p) LIMIT :room)
-- name: wanted_due
SELECT task, count(*) AS number FROM (
    SELECT task, tenant, row_number() OVER () AS n FROM (
        SELECT task, tenant FROM outlast_jobs INDEXED BY outlast_jobs_due
        WHERE queue = :queue AND state = 'queued' AND position IS NULL AND run_at <= :now
        LIMIT :most))
WHERE n = :most OR tenant IS NULL OR tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p)
GROUP BY task
-- name: wanted_moved_on
-- What only an exchange or a worker moves on.
SELECT s.task, 1 AS number
FROM (SELECT * FROM (SELECT id FROM outlast_permits INDEXED BY outlast_permits_freed WHERE freed = 1 LIMIT :most)
      UNION SELECT * FROM (SELECT id FROM outlast_permits INDEXED BY outlast_permits_opens
                           WHERE opens_at IS NOT NULL AND opens_at <= :now LIMIT :most)) AS p
CROSS JOIN outlast_streams AS s
WHERE s.id = (SELECT b.id FROM outlast_streams AS b INDEXED BY outlast_streams_blocked
              WHERE b.blocked = p.id AND b.queue = :queue LIMIT 1)
UNION ALL
SELECT j.task, 1
FROM (SELECT d.job_id FROM outlast_upstream_notices AS n CROSS JOIN outlast_dependencies AS d INDEXED BY outlast_dependencies_upstream
      WHERE d.upstream_id = n.job_id
      UNION
      SELECT w.job_id FROM outlast_upstream_notices AS n CROSS JOIN outlast_waits AS w INDEXED BY outlast_waits_event
      WHERE w.event = n.event AND w.woken = 0 LIMIT :most) AS d
CROSS JOIN outlast_jobs AS j
WHERE j.id = d.job_id AND j.queue = :queue AND j.state IN ('queued', 'blocked') AND j.position IS NULL
  AND (j.tenant IS NULL OR j.tenant NOT IN (SELECT p.value FROM json_each(:tenants) AS p))
UNION ALL
SELECT coalesce(json_extract(call, '$.task'), ''), 1 FROM outlast_schedules INDEXED BY outlast_schedules_next
WHERE paused = 0 AND declared = 1 AND next_tick IS NOT NULL AND next_tick <= :now AND json_valid(call)
  AND coalesce(json_extract(call, '$.queue'), 'default') = :queue
-- name: wanted_running
SELECT count(*) AS number FROM (
    SELECT queue FROM outlast_jobs INDEXED BY outlast_jobs_worker
    WHERE worker_id IS NOT NULL LIMIT :most)
WHERE queue = :queue
