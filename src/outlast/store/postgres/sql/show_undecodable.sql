-- Waiting jobs that no release could decode, so far: by queue and task, with the most times in a row.
-- Among the first $1 that wait for their time, 1,000 at most, by their index; the row of the last attempt is found by
-- its token, which stays on the job: a probe each. The release is looked for in its text, which may be no JSON.
-- Reads only.
SELECT w.queue, w.task, count(*) AS number, max(a.repeats) AS repeats,
       max(substring(a.crash FROM '"release":"([^"]*)"')) AS release
FROM (SELECT queue, task, token FROM outlast_jobs
      WHERE state = 'queued' AND position IS NULL AND solo = 0 ORDER BY queue, run_at LIMIT least($1, 1000)) w
CROSS JOIN LATERAL (
    SELECT x.repeats, x.crash FROM outlast_attempts x
    WHERE x.token = w.token AND x.outcome = 'undecodable' LIMIT 1) a
GROUP BY w.queue, w.task ORDER BY w.queue, w.task
