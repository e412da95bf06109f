-- Delete dead jobs and their attempts. Locked first, in the order of ids; a job that was requeued
-- meanwhile is no longer dead when it is checked again, and stays.
WITH dead AS MATERIALIZED (
    SELECT id FROM outlast_jobs WHERE id = ANY ($1::bigint[]) AND state = 'dead'
    ORDER BY id FOR UPDATE
), evidence AS (
    DELETE FROM outlast_attempts a USING dead d WHERE a.job_id = d.id
), labels AS (
    DELETE FROM outlast_labels l USING dead d WHERE l.job_id = d.id
), logs AS (
    DELETE FROM outlast_logs g USING dead dd WHERE g.job_id = dd.id
), gone AS (
    DELETE FROM outlast_jobs j USING dead d WHERE j.id = d.id RETURNING j.id)
SELECT count(*) FROM gone
