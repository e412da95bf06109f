-- Actions that are under way, the oldest first. Reads only.
SELECT id, extract(epoch FROM at)::float8 AS at, actor, verb, target, job_id, filter, reason, counts, state, expected,
       up_to_id, as_of, before_id, extract(epoch FROM moved_at)::float8 AS moved_at
FROM outlast_actions WHERE state = 'running' ORDER BY id LIMIT $1::integer
