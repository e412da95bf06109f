-- Who runs the jobs that messages have named, where it is not the worker that asks. Reads only, for a
-- line in its log: what ends or is taken over meanwhile was so at the moment of the look.
SELECT j.id, j.token, w.name, w.id FROM outlast_jobs j JOIN outlast_workers w ON w.id = j.worker_id
WHERE j.id = ANY ($2::bigint[]) AND j.worker_id <> $1::bigint
ORDER BY j.id
