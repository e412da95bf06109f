-- name: place
-- Show a job's place among the others (`stream_place` of limits.sql does so for a job in a stream). Of its queue's
-- line, the tasks with jobs in it are found by a probe or two for each task that waits (1,000 probes at most), and
-- counted one by one until there are :most jobs before it. The ORDER BY inside a count is that of the index, which
-- makes any other plan more expensive. Reads only; one snapshot.
WITH RECURSIVE mine AS MATERIALIZED (SELECT queue FROM outlast_jobs WHERE id = :id),
t AS (
    (SELECT task, queue FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NULL
     ORDER BY task, queue, (-priority), position LIMIT 1)
    UNION ALL
    SELECT n.task, n.queue
    FROM t CROSS JOIN mine CROSS JOIN LATERAL (
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE t.queue < mine.queue AND o.position IS NOT NULL AND o.stream IS NULL AND (o.task, o.queue) >= (t.task, mine.queue)
         ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1)
        UNION ALL
        (SELECT o.task, o.queue FROM outlast_jobs o
         WHERE t.queue >= mine.queue AND o.position IS NOT NULL AND o.stream IS NULL AND o.task > t.task
         ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1)) n
), lined AS MATERIALIZED (
    SELECT s.task FROM (SELECT * FROM t LIMIT 1000) s CROSS JOIN mine WHERE s.queue = mine.queue)
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
