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
    $1, $2, $3::text::bigint[], $4::text::bigint[], $5::text::text[], $6,
    $7::text::integer[], $8::text::integer[], $9::text::text[], $10::text::text[], $11::text::text[],
    $12::text::text[], $13::text::text[], $14::text::smallint[], $15::text::bigint[],
    $16, $17, $18, $19, $20, $21, $22, $23::text::text[], $24::text::bigint[], $25,
    $26::text::text[], $27::text::text[], $28::text::integer[], $29::text::integer[],
    $30::text::text[]
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
