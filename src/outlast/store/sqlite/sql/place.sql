-- The line is indexed by task, then by queue, so jobs before one in its queue are counted task by task (1,000 tasks at
-- most), until :most are found.

-- name: place
WITH RECURSIVE me AS (SELECT * FROM outlast_jobs WHERE id = :id),
lane (task) AS (
    SELECT (SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_line
            WHERE o.position IS NOT NULL AND o.stream IS NULL ORDER BY o.task LIMIT 1)
    UNION ALL
    SELECT (SELECT o.task FROM outlast_jobs AS o INDEXED BY outlast_jobs_line
            WHERE o.position IS NOT NULL AND o.stream IS NULL AND o.task > lane.task ORDER BY o.task LIMIT 1)
    FROM lane WHERE lane.task IS NOT NULL LIMIT 1000
)
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM lane CROSS JOIN outlast_jobs AS o INDEXED BY outlast_jobs_line
            WHERE o.queue = me.queue AND o.task = lane.task AND o.position IS NOT NULL AND o.stream IS NULL AND me.stream IS NULL
              AND o.priority >= me.priority
              AND (o.priority > me.priority OR o.position < coalesce(me.position, 9223372036854775807))
            LIMIT :most)) AS before,
       (SELECT json_group_array(id) FROM (
            SELECT o.id FROM outlast_jobs AS o INDEXED BY outlast_jobs_incident
            WHERE o.incident = me.incident AND o.incident IS NOT NULL AND o.id <> me.id
            ORDER BY o.id LIMIT :named)) AS incident,
       (SELECT o.id FROM outlast_jobs AS o INDEXED BY outlast_jobs_key
        WHERE o.key = me.key AND o.key IS NOT NULL AND o.ended_at IS NULL AND o.id <> me.id) AS key_holder
FROM me
