-- Dead jobs by queue, the newest $1 of them, by their index, which holds the queue. Reads only.
SELECT queue, count(*) AS number
FROM (SELECT queue FROM outlast_jobs WHERE state = 'dead' ORDER BY id DESC LIMIT $1) c
GROUP BY queue
