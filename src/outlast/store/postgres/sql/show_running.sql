-- Running jobs by queue, up to $1 of them, by the index of running jobs. Reads only.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT $1) c
GROUP BY queue
