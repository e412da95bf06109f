-- How the $1 attempts ended that have the newest tokens; $2: of which tenant's jobs, NULL: of all. Reads only.
SELECT outcome, count(*) AS number,
       count(*) FILTER (WHERE ended_at > statement_timestamp() - interval '1 hour') AS hour,
       extract(epoch FROM max(ended_at))::float8 AS last_at
FROM (SELECT job_id, outcome, ended_at FROM outlast_attempts ORDER BY token DESC LIMIT $1) a
WHERE $2::text IS NULL OR (SELECT j.tenant FROM outlast_jobs j WHERE j.id = a.job_id) = $2
GROUP BY outcome ORDER BY 2 DESC, 1
