-- Running attempts past their hard deadline by more than $1 seconds, the longest overdue first. Reads
-- only: what closes one of them does so by its token, and an attempt's deadline never changes. One range
-- of the index on hard_deadline. The list is a hundred times as long as what is closed of it at once:
-- those that cannot be closed yet, since their rows are held or their grace is long, are not to hide
-- those behind them.
SELECT j.id, j.token, j.worker_id,
       outlast_seconds_v1(statement_timestamp(), j.hard_deadline), j.policy
FROM outlast_jobs j
WHERE j.hard_deadline < statement_timestamp() - $1 * interval '1 second' AND j.state = 'running'
ORDER BY j.hard_deadline LIMIT $2
