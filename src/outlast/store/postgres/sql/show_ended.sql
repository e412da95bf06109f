-- The $1 jobs that were completed or cancelled last, by queue and state, by the index on their end;
-- and those of the last minute and hour among them. Of jobs with a time of their own (keep), the $1 that
-- are kept longest. Reads only.
SELECT queue, state, count(*) AS number,
       count(*) FILTER (WHERE ended_at > statement_timestamp() - interval '1 minute') AS minute,
       count(*) FILTER (WHERE ended_at > statement_timestamp() - interval '1 hour') AS hour
FROM ((SELECT queue, state, ended_at FROM outlast_jobs
       WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at IS NULL
       ORDER BY prune_at DESC, ended_at DESC LIMIT $1)
      UNION ALL
      (SELECT queue, state, ended_at FROM outlast_jobs
       WHERE ended_at IS NOT NULL AND state <> 'dead' AND prune_at IS NOT NULL
       ORDER BY prune_at DESC LIMIT $1)) c
GROUP BY queue, state
