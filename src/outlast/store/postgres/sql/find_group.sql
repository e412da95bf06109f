-- Ids of the dead jobs of a group ($3), newest first, from $1 down to $2, by their own index, which holds the
-- fingerprint: no row is read. $4: how many. Reads only.
SELECT id FROM outlast_jobs
WHERE state = 'dead' AND id <= $1 AND id >= $2::bigint AND fingerprint = $3
ORDER BY id DESC LIMIT $4
