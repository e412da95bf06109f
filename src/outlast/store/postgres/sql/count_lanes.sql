-- How many jobs of the line each of these lanes has ($1: queues, $2: tasks), counted by index up to $3 in each.
-- Reads only.
SELECT l.queue, l.task,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = l.queue COLLATE "C" AND o.task = l.task COLLATE "C" AND o.position IS NOT NULL
            ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT $3) c) AS number
FROM unnest($1::text[], $2::text[]) AS l (queue, task)
