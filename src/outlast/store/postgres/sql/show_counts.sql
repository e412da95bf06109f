-- The number of jobs by queue and state. Reads the whole table: for people, not for the hot path.
SELECT queue, state, count(*) AS number FROM outlast_jobs GROUP BY queue, state
