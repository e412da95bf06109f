-- Ids of running jobs, newest first, by the index that holds these alone: the order inside asks for it,
-- and OFFSET keeps the filters out (a walk by id would look at all finished jobs). $1: the largest id.
-- $2 to $4 and $6: queue, task, tenant and worker; one that is not set is NULL. $5: how many. Reads only.
SELECT id FROM (
    SELECT id, queue, task, tenant, worker_id FROM outlast_jobs
    WHERE worker_id IS NOT NULL ORDER BY worker_id, cancel_requested OFFSET 0) j
WHERE id <= $1
  AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4) AND ($6::bigint IS NULL OR worker_id = $6)
ORDER BY id DESC LIMIT $5
