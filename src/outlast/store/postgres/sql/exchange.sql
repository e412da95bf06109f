-- The hot path, and reads for announcing jobs that wait. functions/NAME.sql argues why a call of a function is right
-- against a concurrent claim, reap and late worker.

-- name: exchange
SELECT * FROM outlast_exchange_v1(
    p_worker => $1, p_epoch => $2, p_registration => $3, p_done_ids => $4::text::bigint[],
    p_done_tokens => $5::text::bigint[], p_done_results => $6::text::text[], p_ends => $7, p_refusals_kept => $8,
    p_req => ROW(
        $9::text::integer[], $10::text::integer[], $11::text::text[], $12::text::text[], $13::text::text[],
        $14::text::text[], $15::text::smallint[], $16::text::bigint[], $17::bigint, $18::bigint, $19::boolean,
        $20::integer, $21::bigint, $22::text::text[], $23::text::bigint[], $24::text, $25::text::text[],
        $26::text::text[], $27::text, $28::bigint, $29::boolean)::outlast_claim_request_v1
)

-- name: complete
SELECT to_json(outlast_complete_v1($1::text::bigint[], $2::text::bigint[], $3::text::text[]))

-- name: apart
-- Read jobs that an exchange has just claimed but whose texts did not fit into its reply, as rows of that reply: a
-- separate trip, after the commit that has released the locks. If it fails, the claim counts as one whose reply was
-- lost. The attempt writes its first checkpoint later, so the checkpoint read here is the newest. A job that was closed
-- or taken over since is left out.
SELECT j.id AS job_id, j.token, j.task, j.queue, j.args, j.attempt_count AS number, j.failures, j.losses, j.policy, j.tenant,
       j.checkpoint, j.priority, j.solo, j.incident, j.started_at - j.run_at AS waited,
       j.expires_at - j.started_at AS expires_in, j.awaited OR j.stream IS NOT NULL AS awaited
FROM unnest($1::text::bigint[], $2::text::bigint[]) AS u (id, token) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
WHERE j.token = u.token AND j.state = 'running'

-- name: waiting
SELECT * FROM outlast_waiting_v1($1::float8, $2::integer)

-- name: list_run_elsewhere
-- List which workers run the named jobs, if not the worker that asks, for a line in its log.
SELECT j.id, j.token, w.name, w.id FROM outlast_jobs j JOIN outlast_workers w ON w.id = j.worker_id
WHERE j.id = ANY ($2::text::bigint[]) AND j.worker_id <> $1::bigint
ORDER BY j.id
