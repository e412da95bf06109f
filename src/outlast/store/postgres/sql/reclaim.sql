-- Reclaim jobs whose attempts have lost their worker or are out of time. functions/NAME.sql argues why a call of a
-- function is right against a concurrent claim, reap and late worker.

-- name: orphans
SELECT * FROM outlast_orphans_v1($1)

-- name: facts
SELECT * FROM outlast_facts_v1($1::text::bigint[], $2::text::bigint[], $3)

-- name: close
SELECT job_id, token, state FROM outlast_close_v1($1, $2)

-- name: overdue
-- List running attempts that are past their hard deadline by more than $1 seconds, the longest overdue first. The
-- statement that closes one is guarded by its token. A report that moves the deadline after this read is too late: its
-- worker has beaten throughout the slack, and reports time asleep at once. The list is a hundred times as long as the
-- number closed at once, so that attempts whose rows are locked, or whose grace is long, do not hide the attempts
-- behind them.
SELECT j.id, j.token, j.worker_id,
       date_part('epoch', statement_timestamp()) - j.hard_deadline, j.policy
FROM outlast_jobs j
WHERE j.hard_deadline < date_part('epoch', statement_timestamp()) - $1 AND j.state = 'running'
ORDER BY j.hard_deadline LIMIT $2

-- name: superseded
-- Find the attempts that were superseded. Tokens are never drawn twice, so such an attempt stays superseded.
-- `completed` under its own token comes from the attempt's own complete_in, and so may a missing row, if the job is
-- kept for no time (keep = 0). LIMIT keeps the lookup by id from becoming a join: with old statistics that read the
-- whole table for each attempt (0.8 s for 340 among 14,000).
SELECT held.token FROM unnest($1::text::bigint[], $2::text::bigint[]) AS held (job_id, token)
LEFT JOIN LATERAL (
    SELECT j.id, j.token, j.state FROM outlast_jobs j WHERE j.id = held.job_id LIMIT 1) j ON true
WHERE j.id IS NOT NULL AND (j.token = held.token AND j.state IN ('running', 'completed')) IS NOT TRUE

-- name: reconcile
SELECT job_id, token FROM outlast_reconcile_v1($1, $2, $3::text::bigint[], $4, $5)
