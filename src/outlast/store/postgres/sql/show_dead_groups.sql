-- Groups of the $1 newest dead jobs, the one that died last first, at most $2, by the index of dead jobs,
-- which holds all that is asked for. Reads only.
SELECT fingerprint, count(*) AS number, max(id) AS newest,
       extract(epoch FROM min(ended_at))::float8 AS first_at,
       extract(epoch FROM max(ended_at))::float8 AS last_at,
       (sum(count(*)) OVER ())::bigint AS looked_at
FROM (SELECT id, fingerprint, ended_at FROM outlast_jobs
      WHERE state = 'dead' ORDER BY id DESC LIMIT $1) d
GROUP BY fingerprint ORDER BY max(ended_at) DESC, max(id) DESC LIMIT $2
