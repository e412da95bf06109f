-- Ids of dead jobs, newest first, down to $5, by their own index. $6: how many.
-- $1: the largest id. $2 to $4 and $7: queue, task, tenant and fingerprint; one that is not set is NULL.
-- Reads only.
SELECT id FROM outlast_jobs
WHERE state = 'dead' AND id <= $1 AND id >= $5::bigint
  AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4) AND ($7::text IS NULL OR fingerprint = $7)
ORDER BY id DESC LIMIT $6
