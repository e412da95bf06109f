-- name: place
-- Show a job's place among the others (`stream_place` of limits.sql does so for a job in a stream). The lanes name the
-- tasks of its queue's line, whose jobs are counted one by one until there are :most before it. The ORDER BY inside a
-- count is that of the index, which makes any other plan more expensive. Reads only; one snapshot.
WITH lined AS MATERIALIZED (
    SELECT DISTINCT l.task FROM outlast_lanes l WHERE l.queue = (SELECT queue FROM outlast_jobs WHERE id = :id))
SELECT (SELECT count(*) FROM (
            SELECT FROM lined CROSS JOIN LATERAL (
                (SELECT FROM outlast_jobs o
                 WHERE o.queue = j.queue AND o.task = lined.task AND (-o.priority) < (-j.priority)
                   AND o.position IS NOT NULL AND o.stream IS NULL
                 ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT :most)
                UNION ALL
                (SELECT FROM outlast_jobs o
                 WHERE o.queue = j.queue AND o.task = lined.task AND (-o.priority) = (-j.priority)
                   AND o.stream IS NULL AND o.position < coalesce(j.position, 9223372036854775807)
                 ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT :most)) c LIMIT :most) c) AS before,
       to_json(ARRAY(SELECT o.id FROM outlast_jobs o
                     WHERE o.incident = j.incident AND o.incident IS NOT NULL AND o.id <> j.id
                     ORDER BY o.incident LIMIT :named)) AS incident,
       (SELECT o.id FROM outlast_jobs o
        WHERE o.key = j.key AND o.key IS NOT NULL AND o.ended_at IS NULL
          AND o.id <> j.id) AS key_holder
FROM outlast_jobs j
WHERE j.id = :id
