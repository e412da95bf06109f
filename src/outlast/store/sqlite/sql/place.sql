-- Show where a job stands among the others: each count uses one index and stops at :most. The line is indexed by
-- task, then by queue, so jobs in the job's queue are counted task by task (1,000 tasks at most), until :most are
-- found. A job in a stream has none of the line before it (limits.sql has its place); due jobs are those of the line
-- and of streams. Reads only.

-- name: place
WITH RECURSIVE me AS (SELECT * FROM outlast_jobs WHERE id = :id),
lane (task) AS (
    SELECT (SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_line
            WHERE o.position IS NOT NULL AND o.stream IS NULL ORDER BY o.task LIMIT 1)
    UNION ALL
    SELECT (SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_line
            WHERE o.position IS NOT NULL AND o.stream IS NULL AND o.task > lane.task ORDER BY o.task LIMIT 1)
    FROM lane WHERE lane.task IS NOT NULL LIMIT 1000
),
among (task) AS (
    SELECT (SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_stream
            WHERE o.position IS NOT NULL AND o.stream IS NOT NULL ORDER BY o.task LIMIT 1)
    UNION ALL
    SELECT (SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_stream
            WHERE o.position IS NOT NULL AND o.stream IS NOT NULL AND o.task > among.task ORDER BY o.task LIMIT 1)
    FROM among WHERE among.task IS NOT NULL LIMIT 1000
)
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM lane CROSS JOIN outlast_jobs AS o INDEXED BY outlast_jobs_line
            WHERE o.queue = me.queue AND o.task = lane.task AND o.position IS NOT NULL AND o.stream IS NULL AND me.stream IS NULL
              AND o.priority >= me.priority
              AND (o.priority > me.priority OR o.position < coalesce(me.position, 9223372036854775807))
            LIMIT :most)) AS before,
       (SELECT count(*) FROM (
            SELECT * FROM (SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_line
                           WHERE o.position IS NOT NULL AND o.stream IS NULL LIMIT :most)
            UNION ALL
            SELECT * FROM (SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_stream
                           WHERE o.position IS NOT NULL AND o.stream IS NOT NULL LIMIT :most)
            LIMIT :most)) AS due,
       (SELECT count(*) FROM (
            SELECT * FROM (
                SELECT 1 FROM lane CROSS JOIN outlast_jobs AS o INDEXED BY outlast_jobs_line
                WHERE o.queue = me.queue AND o.task = lane.task AND o.position IS NOT NULL AND o.stream IS NULL
                LIMIT :most)
            UNION ALL
            SELECT * FROM (
                SELECT 1 FROM among CROSS JOIN outlast_jobs AS o INDEXED BY outlast_jobs_stream
                WHERE o.queue = me.queue AND o.task = among.task AND o.position IS NOT NULL AND o.stream IS NOT NULL
                LIMIT :most)
            LIMIT :most)) AS due_here,
       (SELECT count(*) FROM (
            SELECT * FROM (
                SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_line
                WHERE o.queue = me.queue AND o.task = me.task AND o.position IS NOT NULL AND o.stream IS NULL LIMIT :most)
            UNION ALL
            SELECT * FROM (
                SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_stream
                WHERE o.queue = me.queue AND o.task = me.task AND o.position IS NOT NULL AND o.stream IS NOT NULL
                LIMIT :most)
            LIMIT :most)) AS due_alike,
       (SELECT count(*) FROM (
            SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_due
            WHERE o.queue = me.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at > :now LIMIT :most)) AS waiting,
       (SELECT count(*) FROM (
            SELECT o.failures + o.losses AS ended FROM outlast_jobs AS o INDEXED BY outlast_jobs_due
            WHERE o.queue = me.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at > :now ORDER BY o.run_at LIMIT :most)
        WHERE ended > 0) AS retrying,
       (SELECT count(*) FROM (
            SELECT o.queue FROM outlast_jobs AS o INDEXED BY outlast_jobs_suspect
            WHERE o.state = 'queued' AND o.solo > 0 LIMIT :most) AS s
        WHERE s.queue = me.queue) AS suspects,
       (SELECT count(*) FROM (
            SELECT 1 FROM outlast_jobs AS o INDEXED BY outlast_jobs_worker
            WHERE o.worker_id = me.worker_id AND o.worker_id IS NOT NULL LIMIT :most)) AS beside,
       (SELECT count(*) FROM (
            SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_dead
            WHERE o.state = 'dead' ORDER BY o.id DESC LIMIT :most) AS d
        WHERE d.task = me.task) AS dead_alike,
       (SELECT json_group_array(id) FROM (
            SELECT o.id FROM outlast_jobs AS o INDEXED BY outlast_jobs_incident
            WHERE o.incident = me.incident AND o.incident IS NOT NULL AND o.id <> me.id
            ORDER BY o.id LIMIT :named)) AS incident,
       (SELECT o.id FROM outlast_jobs AS o INDEXED BY outlast_jobs_key
        WHERE o.key = me.key AND o.key IS NOT NULL AND o.ended_at IS NULL AND o.id <> me.id) AS key_holder
FROM me
