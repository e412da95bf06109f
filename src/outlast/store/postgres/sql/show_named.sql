-- Ids of jobs by the token of an attempt ($1, NULL: none is asked for; closed, under way, or one whose lines
-- are kept: the only completed ones that an index knows), or by the key of an unfinished job ($2), each by an
-- index of its own; at most $3. Reads only.
SELECT job_id AS id FROM outlast_attempts WHERE token = $1::bigint
UNION SELECT job_id FROM outlast_logs WHERE token = $1
UNION SELECT id FROM outlast_jobs WHERE worker_id IS NOT NULL AND token = $1
UNION SELECT id FROM outlast_jobs WHERE key = $2::text AND key IS NOT NULL AND ended_at IS NULL
ORDER BY id DESC LIMIT $3
