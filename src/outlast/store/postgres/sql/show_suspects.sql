-- Jobs that wait to be run alone, by queue, up to $1 of them, by their index. Reads only.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs WHERE state = 'queued' AND solo > 0
      ORDER BY solo, queue, task, priority DESC, run_at LIMIT $1) c
GROUP BY queue
