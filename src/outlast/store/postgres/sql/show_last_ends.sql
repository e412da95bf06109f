-- The last closed attempt of each of the jobs $1 that has one, without what is large. Reads only. It is looked up
-- by the index on (job_id, number), as in show_last_attempts.sql.
SELECT a.token, a.job_id, a.number, a.outcome, a.charge,
       extract(epoch FROM a.started_at)::float8 AS started_at,
       extract(epoch FROM a.ended_at)::float8 AS ended_at, a.worker_id, a.worker, a.host,
       left(a.message, 2000) AS message, a.repeats
FROM unnest($1::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
    SELECT * FROM outlast_attempts WHERE job_id = wanted.id
    ORDER BY number DESC, token DESC LIMIT 1) a
