-- Numbers about the contents of the store. Each statement uses the index that it names and stops at :most rows, those
-- of lanes and queues at :lanes; in one snapshot, without locks.

-- name: lanes
-- The heads of lanes are found as on PostgreSQL.
WITH RECURSIVE head (id) AS (
    SELECT (SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_line
            WHERE position IS NOT NULL AND stream IS NULL ORDER BY task, queue, priority DESC, position LIMIT 1)
    UNION ALL
    SELECT coalesce(
        (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
         WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.queue = c.queue AND n.task = c.task
           AND n.priority < c.priority
         ORDER BY n.priority DESC, n.position LIMIT 1),
        (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
         WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task = c.task AND n.queue > c.queue
         ORDER BY n.queue, n.priority DESC, n.position LIMIT 1),
        (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_line
         WHERE n.position IS NOT NULL AND n.stream IS NULL AND n.task > c.task
         ORDER BY n.task, n.queue, n.priority DESC, n.position LIMIT 1))
    FROM head JOIN outlast_jobs AS c ON c.id = head.id LIMIT :lanes
),
first (id) AS (
    SELECT (SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_stream
            WHERE position IS NOT NULL AND stream IS NOT NULL
            ORDER BY task, queue, stream, coalesce(aged, position) LIMIT 1)
    UNION ALL
    SELECT coalesce(
        (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_stream
         WHERE n.position IS NOT NULL AND n.stream IS NOT NULL AND n.task = c.task AND n.queue > c.queue
         ORDER BY n.queue, n.stream, coalesce(n.aged, n.position) LIMIT 1),
        (SELECT n.id FROM outlast_jobs AS n INDEXED BY outlast_jobs_stream
         WHERE n.position IS NOT NULL AND n.stream IS NOT NULL AND n.task > c.task
         ORDER BY n.task, n.queue, n.stream, coalesce(n.aged, n.position) LIMIT 1))
    FROM first JOIN outlast_jobs AS c ON c.id = first.id LIMIT :lanes
),
seen (id) AS (SELECT id FROM head WHERE id IS NOT NULL UNION ALL SELECT id FROM first WHERE id IS NOT NULL LIMIT :lanes)
SELECT j.queue, j.task, min(j.run_at) AS oldest, (SELECT count(*) FROM seen) AS heads
FROM seen JOIN outlast_jobs AS j ON j.id = seen.id GROUP BY j.queue, j.task
-- name: count_lanes
SELECT q.value AS queue, t.value AS task, count(o.id) AS number, min(o.run_at) AS oldest
FROM json_each(:queues) AS q JOIN json_each(:tasks) AS t ON t.key = q.key
LEFT JOIN outlast_jobs AS o ON o.id IN (
    SELECT * FROM (
        SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_line
        WHERE queue = q.value AND task = t.value AND position IS NOT NULL AND stream IS NULL AND solo <= 0
        LIMIT :most)
    UNION ALL
    SELECT * FROM (
        SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_stream
        WHERE queue = q.value AND task = t.value AND position IS NOT NULL AND stream IS NOT NULL AND solo <= 0
        LIMIT :most)
    LIMIT :most)
GROUP BY q.key
-- name: count_scheduled
SELECT w.value AS queue,
       (SELECT count(*) FROM (
            SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_due
            WHERE o.queue = w.value AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at > :now LIMIT :most)) AS number
FROM json_each(:queues) AS w
-- name: count_overdue
SELECT w.value AS queue, o.task, count(*) AS number, min(o.run_at) AS oldest,
       sum(count(*)) OVER (PARTITION BY w.value) AS looked_at
FROM json_each(:queues) AS w CROSS JOIN outlast_jobs AS o
WHERE o.id IN (
    SELECT id FROM outlast_jobs INDEXED BY outlast_jobs_due
    WHERE queue = w.value AND state = 'queued' AND position IS NULL AND solo = 0 AND run_at <= :now
    ORDER BY run_at LIMIT :most)
GROUP BY w.value, o.task
-- name: ended
SELECT queue, state, count(*) AS number, sum(ended_at > :now - 60) AS minute, sum(ended_at > :now - 3600) AS hour,
       count(keep) AS kept FROM (
    SELECT * FROM (
        SELECT queue, state, ended_at, keep FROM outlast_jobs INDEXED BY outlast_jobs_ended_at
        WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep IS NULL
        ORDER BY ended_at DESC LIMIT :most)
    UNION ALL
    SELECT * FROM (
        SELECT queue, state, ended_at, keep FROM outlast_jobs INDEXED BY outlast_jobs_ended_at
        WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep IS NOT NULL
        ORDER BY ended_at + keep DESC LIMIT :most))
GROUP BY queue, state
-- name: undecodable
SELECT w.queue, w.task, count(*) AS number, max(a.repeats) AS repeats,
       max(CASE WHEN json_valid(a.crash) THEN json_extract(a.crash, '$.release') END) AS release
FROM (SELECT queue, task, token FROM outlast_jobs INDEXED BY outlast_jobs_due
      WHERE state = 'queued' AND position IS NULL AND solo = 0 ORDER BY queue, run_at LIMIT min(:most, 1000)) AS w
JOIN outlast_attempts AS a ON a.token = w.token AND a.outcome = 'undecodable'
GROUP BY w.queue, w.task ORDER BY w.queue, w.task
