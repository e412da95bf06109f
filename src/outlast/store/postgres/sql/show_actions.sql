-- What people did, newest first, before $1, of one job ($2) or all; the table is bounded. Reads only.
SELECT id, extract(epoch FROM at)::float8 AS at, actor, verb, target, job_id, filter, reason, counts, state, expected,
       up_to_id, as_of, before_id, extract(epoch FROM moved_at)::float8 AS moved_at
FROM outlast_actions WHERE id < $1 AND ($2::bigint IS NULL OR job_id = $2) ORDER BY id DESC LIMIT $3::integer
