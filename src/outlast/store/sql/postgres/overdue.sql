-- Running attempts past their hard deadline by more than $1 seconds, and the clock that says so,
-- read once. Reads only: who closes one of them does so by its token, and an attempt's deadline
-- never changes. The inner query is one range of the index on hard_deadline.
SELECT extract(epoch FROM clock.now)::float8 AS now, late.*
FROM (SELECT clock_timestamp() AS now) AS clock LEFT JOIN LATERAL (
    SELECT j.id, j.token, extract(epoch FROM clock.now - j.hard_deadline)::float8 AS seconds,
           j.policy
    FROM outlast_jobs j
    WHERE j.hard_deadline < clock.now - $1 * interval '1 second' AND j.state = 'running'
    ORDER BY j.hard_deadline LIMIT $2) AS late ON true
