-- Which of these attempts are no longer current. Reads only: tokens never come back, so what was
-- superseded once stays so. ``completed`` under its own token is the attempt's own complete_in; so may be
-- a row that is gone, as of a job that is kept for no time (keep = 0).
-- One look by id for each (LIMIT keeps it from becoming a join): with statistics from before the
-- first job ran, a join read the whole table for each attempt, 0.8 s for 340 among 14,000.
SELECT held.token FROM unnest($1::bigint[], $2::bigint[]) AS held (job_id, token)
LEFT JOIN LATERAL (
    SELECT j.id, j.token, j.state FROM outlast_jobs j WHERE j.id = held.job_id LIMIT 1) j ON true
WHERE j.id IS NOT NULL AND (j.token = held.token AND j.state IN ('running', 'completed')) IS NOT TRUE
