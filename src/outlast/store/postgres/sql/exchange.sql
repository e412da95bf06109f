-- The hot path, and reads for announcing jobs that wait. functions/NAME.sql argues why a call of a function is right
-- against a concurrent claim, reap and late worker.

-- name: exchange
SELECT * FROM outlast_exchange_v1(
    p_worker => $1, p_epoch => $2, p_done_ids => $3::text::bigint[], p_done_tokens => $4::text::bigint[],
    p_done_results => $5::text::text[], p_ends => $6, p_limits => $7::text::integer[], p_solos => $8::text::integer[],
    p_tasks => $9::text::text[], p_queues => $10::text::text[], p_named => $11::text::text[],
    p_lane_queues => $12::text::text[], p_lane_tasks => $13::text::text[], p_lane_ranks => $14::text::smallint[],
    p_lane_floors => $15::text::bigint[], p_look_from => $16, p_look_to => $17, p_notify => $18, p_claims_max => $19,
    p_bytes_max => $20, p_refusals_kept => $21, p_registration => $22, p_firsts => $23::text::text[],
    p_wakes => $24::text::bigint[], p_kind => $25, p_not_queues => $26::text::text[],
    p_not_tenants => $27::text::text[], p_mosts => $28::text::integer[], p_searches => $29::text::integer[],
    p_news => $30::text::text[]
)

-- name: waiting
SELECT * FROM outlast_waiting_v1($1::float8, $2::integer)

-- name: list_run_elsewhere
-- List which workers run the named jobs, if not the worker that asks. Reads only, for a line in its log: the answer
-- was true at the moment of the look, and a job may end or be taken over since.
SELECT j.id, j.token, w.name, w.id FROM outlast_jobs j JOIN outlast_workers w ON w.id = j.worker_id
WHERE j.id = ANY ($2::bigint[]) AND j.worker_id <> $1::bigint
ORDER BY j.id
