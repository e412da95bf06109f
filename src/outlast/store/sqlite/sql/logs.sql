-- The last lines of running attempts, one row for each. Fenced by (id, token, running), under the write lock:
-- what a late worker sends finds no job. `printed` counts the lines of the attempt so far: fewer never replace more,
-- as on PostgreSQL, where a write may arrive late. Of each job the newest rows stay: tokens rise with attempts.

-- name: keep
INSERT INTO outlast_logs (token, job_id, number, printed, lines)
SELECT token, id, :number, :printed, :lines FROM outlast_jobs
WHERE id = :job_id AND token = :token AND state = 'running'
ON CONFLICT (token) DO UPDATE SET printed = excluded.printed, lines = excluded.lines
WHERE printed <= excluded.printed
-- name: trim
DELETE FROM outlast_logs WHERE token IN (
    SELECT token FROM outlast_logs WHERE job_id = :job_id ORDER BY token DESC LIMIT -1 OFFSET :kept)
