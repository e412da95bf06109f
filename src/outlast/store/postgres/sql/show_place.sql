-- Where a job stands among the others: each count is by one index and stops at $2. The order that
-- is asked for inside a count is that of the index, which leaves no cheaper way than by it.
-- Reads only; one snapshot.
WITH RECURSIVE lane AS (
    (SELECT queue, task, -priority AS rank FROM outlast_jobs WHERE position IS NOT NULL
     ORDER BY task, queue, (-priority), position LIMIT 1)
    UNION ALL
    SELECT n.queue, n.task, n.rank
    FROM lane l CROSS JOIN LATERAL (
        SELECT o.queue, o.task, -o.priority AS rank FROM outlast_jobs o
        WHERE o.position IS NOT NULL
          AND (o.task, o.queue, (-o.priority)) > (l.task, l.queue, l.rank)
        ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT 1) n
), part AS MATERIALIZED (
    SELECT l.queue, l.task, l.rank,
           (SELECT count(*) FROM (
                SELECT FROM outlast_jobs o
                WHERE o.queue = l.queue AND o.task = l.task AND (-o.priority) = l.rank
                  AND o.position IS NOT NULL
                ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT $2) c) AS number,
           (SELECT count(*) FROM (
                SELECT FROM outlast_jobs o
                WHERE o.queue = l.queue AND o.task = l.task AND (-o.priority) = l.rank
                  AND o.position < (SELECT coalesce(position, 9223372036854775807)
                                    FROM outlast_jobs WHERE id = $1)
                ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT $2) c) AS earlier
    FROM (SELECT * FROM lane LIMIT $2) l)
SELECT least($2::bigint, m.before) AS before, least($2::bigint, m.due) AS due,
       least($2::bigint, m.due_here) AS due_here, least($2::bigint, m.due_alike) AS due_alike,
       w.waiting, w.retrying,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = j.queue AND o.state = 'queued' AND o.solo > 0
            ORDER BY o.queue, o.run_at LIMIT $2) c) AS suspects,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o WHERE o.worker_id = j.worker_id LIMIT $2) c) AS beside,
       (SELECT count(*) FILTER (WHERE c.task = j.task) FROM (
            SELECT o.task FROM outlast_jobs o WHERE o.state = 'dead'
            ORDER BY o.id DESC LIMIT $2) c) AS dead_alike,
       ARRAY(SELECT o.id FROM outlast_jobs o
             WHERE o.incident = j.incident AND o.incident IS NOT NULL AND o.id <> j.id
             ORDER BY o.incident LIMIT $3) AS incident,
       (SELECT o.id FROM outlast_jobs o
        WHERE o.key = j.key AND o.key IS NOT NULL AND o.ended_at IS NULL
          AND o.id <> j.id) AS key_holder
FROM outlast_jobs j
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, count(*) FILTER (WHERE c.failures > 0 OR c.losses > 0) AS retrying
    FROM (SELECT o.failures, o.losses FROM outlast_jobs o
          WHERE o.queue = j.queue AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
            AND o.run_at > statement_timestamp()
          ORDER BY o.queue, o.run_at LIMIT $2) c) w
CROSS JOIN LATERAL (
    SELECT coalesce(sum(p.number), 0)::bigint AS due,
           coalesce(sum(p.number) FILTER (WHERE p.queue = j.queue), 0)::bigint AS due_here,
           coalesce(sum(p.number) FILTER (WHERE p.queue = j.queue AND p.task = j.task),
                    0)::bigint AS due_alike,
           coalesce(sum(CASE WHEN p.rank < -j.priority THEN p.number
                             WHEN p.rank = -j.priority THEN p.earlier END)
                    FILTER (WHERE p.queue = j.queue), 0)::bigint AS before
    FROM part p) m
WHERE j.id = $1
