-- The least token among the $2 newest attempts with tokens below $1, how many those are, and when the
-- first of them ended. Reads only.
SELECT min(token) AS token, count(*) AS number, extract(epoch FROM min(ended_at))::float8 AS back_to
FROM (SELECT token, ended_at FROM outlast_attempts
      WHERE token < $1 ORDER BY token DESC LIMIT $2) a
