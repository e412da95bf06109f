-- Which of these attempts are no longer current. Reads only: tokens never come back, so what was
-- superseded once stays so. ``completed`` under its own token is the attempt's own complete_in.
SELECT held.token FROM unnest($1::bigint[], $2::bigint[]) AS held (job_id, token)
WHERE NOT EXISTS (
    SELECT FROM outlast_jobs j WHERE j.id = held.job_id AND j.token = held.token
    AND j.state IN ('running', 'completed'))
