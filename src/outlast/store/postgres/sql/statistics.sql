-- Numbers about the contents of the store, each of them bounded. Reads only.

-- name: lanes
-- Read the line by queue and task, with the oldest due time of each: from the head of one lane to the next by index,
-- one probe each, :lanes probes at most. A queue and a task have one head for each priority; heads is the number of
-- heads read. Jobs in streams count as well; the oldest of a queue and a task is then that of its first stream.
WITH RECURSIVE head AS (
    (SELECT queue, task, -priority AS rank, run_at FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NULL
     ORDER BY task, queue, (-priority), position LIMIT 1)
    UNION ALL
    SELECT n.queue, n.task, n.rank, n.run_at
    FROM head h CROSS JOIN LATERAL (
        SELECT j.queue, j.task, -j.priority AS rank, j.run_at FROM outlast_jobs j
        WHERE j.position IS NOT NULL AND j.stream IS NULL
          AND (j.task, j.queue, (-j.priority)) > (h.task, h.queue, h.rank)
        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n
), stream AS (
    (SELECT queue, task, run_at FROM outlast_jobs WHERE position IS NOT NULL AND stream IS NOT NULL
     ORDER BY task, queue, stream, coalesce(aged, position) LIMIT 1)
    UNION ALL
    SELECT n.queue, n.task, n.run_at
    FROM stream h CROSS JOIN LATERAL (
        SELECT j.queue, j.task, j.run_at FROM outlast_jobs j
        WHERE j.position IS NOT NULL AND j.stream IS NOT NULL AND (j.task, j.queue) > (h.task, h.queue)
        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) n
), seen AS MATERIALIZED (
    SELECT * FROM ((SELECT queue, task, run_at FROM head LIMIT :lanes) UNION ALL (SELECT * FROM stream LIMIT :lanes)) s LIMIT :lanes)
SELECT queue, task, min(run_at) AS oldest, (SELECT count(*) FROM seen) AS heads
FROM seen GROUP BY queue, task

-- name: count_lanes
-- Count up to :most jobs, in streams as well, for each pair of queue and task (at the same index of two lists), with the
-- oldest due time among them.
SELECT l.queue, l.task, c.number, c.oldest
FROM unnest(:queues::text[], :tasks::text[]) AS l (queue, task)
CROSS JOIN LATERAL (
    SELECT count(*) AS number, min(b.run_at) AS oldest FROM (
        SELECT b.run_at FROM (
            (SELECT o.run_at FROM outlast_jobs o
             WHERE o.queue = l.queue COLLATE "C" AND o.task = l.task COLLATE "C" AND o.position IS NOT NULL
               AND o.stream IS NULL AND o.solo <= 0
             ORDER BY o.task, o.queue, (-o.priority), o.position LIMIT :most)
            UNION ALL
            (SELECT o.run_at FROM outlast_jobs o
             WHERE o.queue = l.queue COLLATE "C" AND o.task = l.task COLLATE "C" AND o.position IS NOT NULL
               AND o.stream IS NOT NULL AND o.solo <= 0
             ORDER BY o.task, o.queue, o.stream, coalesce(o.aged, o.position) LIMIT :most)) b
        LIMIT :most) b) c

-- name: count_scheduled
-- For each of these queues, count up to :most jobs that wait for their time.
SELECT w.queue,
       (SELECT count(*) FROM (
            SELECT FROM outlast_jobs o
            WHERE o.queue = w.queue COLLATE "C" AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
              AND o.run_at > date_part('epoch', statement_timestamp())
            ORDER BY o.queue, o.run_at LIMIT :most) c) AS number
FROM unnest(:queues::text[]) AS w (queue)

-- name: count_overdue
-- Count, by task, the first :most due jobs of each of these queues that are not in the line yet. looked_at: how many
-- there are of the queue.
SELECT w.queue, c.task, count(*) AS number, min(c.run_at) AS oldest,
       (sum(count(*)) OVER (PARTITION BY w.queue))::integer AS looked_at
FROM unnest(:queues::text[]) AS w (queue)
CROSS JOIN LATERAL (
    SELECT o.task, o.run_at FROM outlast_jobs o
    WHERE o.queue = w.queue COLLATE "C" AND o.state = 'queued' AND o.position IS NULL AND o.solo = 0
      AND o.run_at <= date_part('epoch', statement_timestamp())
    ORDER BY o.queue, o.run_at LIMIT :most) c
GROUP BY w.queue, c.task

-- name: ended
-- Read the :most jobs that were completed or cancelled last, by the index on their end; among jobs with their own
-- retention (keep), the :most that are kept longest.
SELECT queue, state, count(*) AS number,
       count(*) FILTER (WHERE ended_at > date_part('epoch', statement_timestamp()) - 60) AS minute,
       count(*) FILTER (WHERE ended_at > date_part('epoch', statement_timestamp()) - 3600) AS hour, count(keep) AS kept
FROM ((SELECT queue, state, ended_at, keep FROM outlast_jobs
       WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep IS NULL
       ORDER BY ended_at + keep DESC, ended_at DESC LIMIT :most)
      UNION ALL
      (SELECT queue, state, ended_at, keep FROM outlast_jobs
       WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep IS NOT NULL
       ORDER BY ended_at + keep DESC LIMIT :most)) c
GROUP BY queue, state

-- name: undecodable
-- Find waiting jobs that no release could decode so far, with the highest number of such attempts in a row. Reads the
-- first :most jobs that wait for their time, 1,000 at most. The row of the last attempt is found by its token, which
-- stays on the job. The release is searched as text, since crash may not be valid JSON.
SELECT w.queue, w.task, count(*) AS number, max(a.repeats) AS repeats,
       max(substring(a.crash FROM '"release":"([^"]*)"')) AS release
FROM (SELECT queue, task, token FROM outlast_jobs
      WHERE state = 'queued' AND position IS NULL AND solo = 0 ORDER BY queue, run_at LIMIT least(:most, 1000)) w
CROSS JOIN LATERAL (
    SELECT x.repeats, x.crash FROM outlast_attempts x
    WHERE x.token = w.token AND x.outcome = 'undecodable' LIMIT 1) a
GROUP BY w.queue, w.task ORDER BY w.queue, w.task
