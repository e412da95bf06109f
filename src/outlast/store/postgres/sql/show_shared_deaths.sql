-- The jobs of the newest shared deaths, at most $1, by the index on incidents. Reads only.
SELECT incident, cohort, id AS job_id, task, queue, state, solo, losses, tenant
FROM outlast_jobs WHERE incident IS NOT NULL ORDER BY incident DESC LIMIT $1
