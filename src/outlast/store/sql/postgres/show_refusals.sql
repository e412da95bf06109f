-- Refused writes, newest first. Reads only.
SELECT job_id, token, verb, extract(epoch FROM at)::float8 AS at, late_by
FROM outlast_refusals WHERE $1::bigint IS NULL OR job_id = $1 ORDER BY id DESC LIMIT $2::integer
