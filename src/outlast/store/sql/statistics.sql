-- Numbers about the contents of the store: statements that all stores share (statements.py). Reads only.

-- name: dead
-- Dead jobs by queue, the newest :most of them, by their index, which holds the queue.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs /*! INDEXED BY outlast_jobs_dead */
      WHERE state = 'dead' ORDER BY id DESC LIMIT :most) c
GROUP BY queue
-- name: blocked
-- Jobs that wait for the end of others, by queue, up to :most of them, by their index.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs /*! INDEXED BY outlast_jobs_blocked */
      WHERE state = 'blocked' ORDER BY id LIMIT :most) c
GROUP BY queue
-- name: running
-- Running jobs by queue, up to :most of them, by the index of running jobs.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs /*! INDEXED BY outlast_jobs_worker */
      WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT :most) c
GROUP BY queue
-- name: suspects
-- Jobs that wait to run alone, by queue, up to :most of them, by their index.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs /*! INDEXED BY outlast_jobs_suspect */ WHERE state = 'queued' AND solo > 0
      ORDER BY task, queue, stream, (-priority), position LIMIT :most) c
GROUP BY queue
