-- The queues that have jobs outside the line, with the time of the oldest one that is due and was not put into it
-- yet: from one queue to the next by index, one probe each, $1 of them at most. Reads only.
WITH RECURSIVE q AS (
    (SELECT queue, run_at FROM outlast_jobs WHERE state = 'queued' AND position IS NULL AND solo = 0
     ORDER BY queue, run_at LIMIT 1)
    UNION ALL
    SELECT n.queue, n.run_at
    FROM q CROSS JOIN LATERAL (
        SELECT j.queue, j.run_at FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.position IS NULL AND j.solo = 0 AND j.queue > q.queue
        ORDER BY j.queue, j.run_at LIMIT 1) n)
SELECT queue, CASE WHEN run_at <= statement_timestamp() THEN extract(epoch FROM run_at)::float8 END AS oldest
FROM q LIMIT $1
