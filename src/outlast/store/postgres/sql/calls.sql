-- The verbs that only call functions. functions/NAME.sql argues why each is right against a concurrent
-- claim, reap and late worker. Each statement follows a line with its name.

-- name: cancel
SELECT job_id, answer FROM outlast_cancel_v1($1, $2, $3)

-- name: requeue
SELECT job_id, answer FROM outlast_requeue_v1($1, $2, $3)

-- name: merge_minutes
SELECT outlast_merge_minutes_v1($1, $2, $3, $4)

-- name: wanted
SELECT outlast_wanted_v1($1)

-- name: expire
SELECT outlast_expire_v1($1)

-- name: free_keys
SELECT outlast_free_keys_v1($1::text[])

-- name: forget
SELECT outlast_forget_v1(ARRAY[$1::bigint])

-- name: checkpoint
SELECT job_id, token, answer FROM outlast_checkpoint_v1($1, $2, $3, $4, $5, $6)

-- name: progress
SELECT job_id, token, answer FROM outlast_progress_v1($1, $2, $3, $4)

-- name: keep_logs
SELECT * FROM outlast_keep_logs_v1($1, $2, $3, $4, $5, $6)

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

-- name: orphans
SELECT * FROM outlast_orphans_v1($1)

-- name: facts
SELECT * FROM outlast_facts_v1($1, $2, $3)

-- name: close
SELECT job_id, token, state FROM outlast_close_v1($1, $2)

-- name: reconcile
SELECT job_id, token FROM outlast_reconcile_v1($1, $2, $3, $4, $5)

-- name: free
SELECT outlast_free_v1($1, $2)

-- name: heartbeat
SELECT * FROM outlast_heartbeat_v1($1, $2)

-- name: glance
SELECT * FROM outlast_glance_v1($1)

-- name: keep_watch
SELECT outlast_keep_watch_v1($1, $2)

-- name: presence_hold
SELECT outlast_hold_presence_v1($1, $2, $3, $4)

-- name: raise_tokens
-- larger than this token, and than any of another incarnation of the database
SELECT outlast_begin_incarnation_v1(), outlast_raise_tokens_v1($1)

-- name: waiting
SELECT * FROM outlast_waiting_v1($1::float8, $2::integer)

-- name: put_schedules
-- in the order of their names: so two that put the same ones wait in the same order
SELECT p.name, outlast_put_schedule_v1(
    p.name, p.call, p.spec, p.overlap, p.catch_up, p.grace, $8::text, p.version, $9::float8, $10::float8,
    $11::float8, $12::integer, $13::integer) AS answer
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[])
          AS u (name, call, spec, overlap, catch_up, grace, version)
      ORDER BY u.name COLLATE "C") p
