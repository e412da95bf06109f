-- How many active workers serve the same queues and tasks as this one, itself included: by that number those
-- spread what they do when all are woken. Reads only, and guards nothing.
SELECT count(*) FROM outlast_workers me
JOIN outlast_workers w ON w.status = 'active' AND w.queues = me.queues AND w.tasks = me.tasks
WHERE me.id = $1 AND me.registration IS NOT DISTINCT FROM $2
