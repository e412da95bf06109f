-- Ids of jobs with the label $8, newest first, down to $5, by the index of labels. $6: the state, $7: how many.
-- $1: the largest id. $2 to $4: queue, task and tenant; one that is not set is NULL. Reads only.
SELECT l.job_id AS id
FROM outlast_labels l
CROSS JOIN LATERAL (
    SELECT j.queue, j.task, j.tenant, j.state FROM outlast_jobs j WHERE j.id = l.job_id LIMIT 1) j
WHERE l.label = $8 AND l.job_id <= $1 AND l.job_id >= $5::bigint
  AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.task = $3)
  AND ($4::text IS NULL OR j.tenant = $4)
  AND ($6::text IS NULL OR j.state = $6)
ORDER BY l.label DESC, l.job_id DESC LIMIT $7
