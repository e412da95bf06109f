-- How many of $1 unfinished jobs have plain arguments or a plain checkpoint, by task: of the line, of those that
-- wait for their time, of suspects and of those that run, each by the index that holds these alone. Encrypted is what
-- names a key among the codecs at its beginning (outlast/payloads.py): base64 has no quotation marks. Reads only.
SELECT task, count(*) AS looked_at,
       count(*) FILTER (WHERE left(args, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%'
           OR left(checkpoint, 2000) NOT LIKE ' ["outlast:payload",[%"aes-256-gcm:%') AS number
FROM (
    SELECT * FROM (
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE position IS NOT NULL ORDER BY task, queue, (-priority), position LIMIT $1)
        UNION ALL
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE state = 'queued' AND position IS NULL AND solo = 0 ORDER BY queue, run_at LIMIT $1)
        UNION ALL
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE state = 'queued' AND solo > 0 ORDER BY solo, queue, task, priority DESC, run_at LIMIT $1)
        UNION ALL
        (SELECT task, args, checkpoint FROM outlast_jobs
         WHERE worker_id IS NOT NULL ORDER BY worker_id, cancel_requested LIMIT $1)) a
    LIMIT $1) j
GROUP BY task ORDER BY task
