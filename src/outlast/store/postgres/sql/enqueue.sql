-- Store jobs. These statements also run inside a caller's own transaction, so none of them begins or commits one.
-- functions/NAME.sql argues why a call of a function is right against a concurrent claim, reap and late worker.
--
-- {shared}, {own}, {timed}: the columns of a new job, and the expressions for the columns that depend on the clock, as
-- listed in new_rows.py. {n.shared}: the same after "n."; {:shared}: the values; {:shared[]}: an array of each.

-- name: many
-- Store jobs without keys, all or none, in the order in which they were given. No other session can see the rows yet,
-- so nothing races with them. A due job gets its position in the line; any other gets none until an exchange finds it
-- due. Times count from the statement, since the caller's transaction may have been open for long. One notice is
-- appended for each stream that due jobs join, because other sessions may hold the stream's row.
WITH inserted AS (
    INSERT INTO outlast_jobs ({shared}, {own}, run_at, enqueued_at, position, expires_at, aged, state, awaited)
    SELECT {n.shared}, {n.own}, n.due, date_part('epoch', statement_timestamp()),
           CASE WHEN n.due <= date_part('epoch', statement_timestamp()) AND NOT n.waits THEN nextval('outlast_position_seq') END,
           n.ends, ((n.due - n.aged_by) * 1000)::bigint, CASE WHEN n.waits THEN 'blocked' ELSE 'queued' END, n.awaited
    FROM (SELECT h.*, coalesce(h.run_at, date_part('epoch', statement_timestamp()) + h.delay) AS due,
                 coalesce(h.expires_at, date_part('epoch', statement_timestamp()) + h.expires) AS ends
          FROM unnest({:shared[]}, {:own[]}, {:timed[]}, :awaited::text::boolean[])
               WITH ORDINALITY AS h ({shared}, {own}, {timed}, awaited, ord)
          ORDER BY h.ord) n
    RETURNING id, queue, position, stream, task, aged
), arrived AS (
    INSERT INTO outlast_notices (stream, arrived, task, queue, place)
    SELECT i.stream, true, i.task, i.queue, min(coalesce(i.aged, i.position))
    FROM inserted i WHERE i.stream IS NOT NULL AND i.position IS NOT NULL GROUP BY i.stream, i.task, i.queue
), noted AS MATERIALIZED (
    SELECT pg_notify(outlast_channel_v1(), 'jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT queue, min(position) AS first, count(*)
          FROM inserted WHERE position IS NOT NULL AND :notify::boolean GROUP BY queue) q
)
SELECT i.id FROM inserted i, (SELECT count(*) FROM noted) AS done ORDER BY i.id

-- name: alike
-- As `many`, for jobs that differ only in their arguments and are due at once. The arguments come as one text separated
-- by character 31, which no JSON contains: an array would cost more to write and to read. The notification is sent
-- where the function's argument is computed, so once for any number of rows; it carries a position that no job gets.
-- Nothing here depends on the contents of the tables, so a plan can be kept for good.
INSERT INTO outlast_jobs ({shared}, args, tenant, run_at, enqueued_at, position)
SELECT {:shared}, h.args, :tenant::text,
       date_part('epoch', statement_timestamp()), date_part('epoch', statement_timestamp()), nextval('outlast_position_seq')
FROM string_to_table(
         CASE WHEN :notify::boolean THEN :texts::text || pg_notify(outlast_channel_v1(),
                  'jobs:' || nextval('outlast_position_seq') || ':' || :count::integer || ':' || left(:queue::text, 1000))::text
              ELSE :texts::text END,
         chr(31)) AS h (args)
RETURNING id

-- name: alike_in_streams
-- As `alike`, for jobs that may also differ in their tenants, their streams and their needs; each of these has one
-- value for all jobs, or one for each job. :aged_by: if the jobs age, the seconds that their priority is worth.
WITH inserted AS (
    INSERT INTO outlast_jobs ({shared}, args, tenant, stream, needs, run_at, enqueued_at, position, aged)
    SELECT {:shared}, h.args, CASE WHEN cardinality(:tenants::text[]) = 1 THEN (:tenants::text[])[1] ELSE h.tenant END,
           CASE WHEN cardinality(:streams::text::bigint[]) = 1 THEN (:streams::text::bigint[])[1] ELSE h.stream END,
           CASE WHEN cardinality(:wanted::text[]) = 1 THEN (:wanted::text[])[1] ELSE h.needs END,
           date_part('epoch', statement_timestamp()), date_part('epoch', statement_timestamp()), nextval('outlast_position_seq'),
           ((date_part('epoch', statement_timestamp()) - :aged_by::float8) * 1000)::bigint
    FROM ROWS FROM (
             string_to_table(
                 CASE WHEN :notify::boolean THEN :texts::text || pg_notify(outlast_channel_v1(),
                          'jobs:' || nextval('outlast_position_seq') || ':' || :count::integer || ':' || left(:queue::text, 1000))::text
                      ELSE :texts::text END,
                 chr(31)),
             unnest(:tenants::text[]), unnest(:streams::text::bigint[]), unnest(:wanted::text[])) AS h (args, tenant, stream, needs)
    RETURNING id, task, queue, stream, coalesce(aged, position) AS place
), arrived AS (
    INSERT INTO outlast_notices (stream, arrived, task, queue, place)
    SELECT i.stream, true, i.task, i.queue, min(i.place)
    FROM inserted i WHERE i.stream IS NOT NULL GROUP BY i.stream, i.task, i.queue
)
SELECT i.id FROM inserted i

-- name: one
-- As `alike`, for one job, the most common call, without the cost of a set of rows.
INSERT INTO outlast_jobs ({shared}, args, tenant, run_at, enqueued_at, position)
VALUES ({:shared}, :args::text, :tenant::text,
        date_part('epoch', statement_timestamp()), date_part('epoch', statement_timestamp()), nextval('outlast_position_seq'))
RETURNING id,
    CASE WHEN :notify::boolean
         THEN pg_notify(outlast_channel_v1(), 'jobs:' || position || ':1:' || left(:queue::text, 1000))::text END AS noted

-- name: one_with_key
-- Store one job with a key, as `keyed` does for many. Nothing is looked up, so a plan can be kept for good.
INSERT INTO outlast_jobs ({shared}, {own}, run_at, enqueued_at, position, expires_at)
SELECT {:shared}, {:own}, d.due, date_part('epoch', statement_timestamp()),
       CASE WHEN d.due <= date_part('epoch', statement_timestamp()) THEN nextval('outlast_position_seq') END,
       coalesce(:expires_at::float8, date_part('epoch', statement_timestamp()) + :expires::float8)
FROM (SELECT coalesce(:run_at::float8, date_part('epoch', statement_timestamp()) + :delay::float8) AS due) d
ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
RETURNING id,
    CASE WHEN :notify::boolean AND position IS NOT NULL
         THEN pg_notify(outlast_channel_v1(), 'jobs:' || position || ':1:' || left(queue, 1000))::text END AS noted

-- name: keyed
-- Store jobs of which some have keys or labels (:labels: each job's labels as a JSON array, or NULL). If an unfinished
-- job has the key of a new one, the new one is not inserted, and the unfinished one is neither locked nor touched: the
-- caller reads it by a separate statement with its own snapshot, and calls this again if that job has ended in between.
-- The unique index decides between two enqueues of one key: the second waits for the first to commit.
--
-- Positions follow the order in which the jobs were given, ids the order of their keys, so that two batches with the
-- same keys wait in the same order. No statement that enqueues writes an id explicitly: a role with that right could
-- take the ids that come next, and then no other job could be stored.
WITH numbered AS MATERIALIZED (
    SELECT h.*, nextval('outlast_position_seq') AS place,
           coalesce(h.run_at, date_part('epoch', statement_timestamp()) + h.delay) AS due,
           coalesce(h.expires_at, date_part('epoch', statement_timestamp()) + h.expires) AS ends
    FROM unnest({:shared[]}, {:own[]}, {:timed[]}, :awaited::text::boolean[], :labels::text[])
         WITH ORDINALITY AS h ({shared}, {own}, {timed}, awaited, labels, ord)
), inserted AS (
    INSERT INTO outlast_jobs ({shared}, {own}, run_at, enqueued_at, position, expires_at, aged, state, awaited)
    SELECT {n.shared}, {n.own}, n.due, date_part('epoch', statement_timestamp()),
           CASE WHEN n.due <= date_part('epoch', statement_timestamp()) AND NOT n.waits THEN n.place END,
           n.ends, ((n.due - n.aged_by) * 1000)::bigint, CASE WHEN n.waits THEN 'blocked' ELSE 'queued' END, n.awaited
    FROM numbered n ORDER BY n.key, n.ord
    ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
    RETURNING id, key, queue, position, stream, task, aged
), arrived AS (
    INSERT INTO outlast_notices (stream, arrived, task, queue, place)
    SELECT i.stream, true, i.task, i.queue, min(coalesce(i.aged, i.position))
    FROM inserted i WHERE i.stream IS NOT NULL AND i.position IS NOT NULL GROUP BY i.stream, i.task, i.queue
), stored AS MATERIALIZED (
    SELECT i.id, n.ord, n.labels
    FROM (SELECT n.*, coalesce(n.key, '') AS same, row_number() OVER (PARTITION BY n.key ORDER BY n.ord) AS nth
          FROM numbered n) n
    JOIN (SELECT i.id, coalesce(i.key, '') AS same, row_number() OVER (PARTITION BY i.key ORDER BY i.id) AS nth
          FROM inserted i) i ON i.same = n.same AND i.nth = n.nth
), labelled AS MATERIALIZED (
    SELECT outlast_label_v1(array_agg(s.id), array_agg(s.labels)) FROM stored s WHERE s.labels IS NOT NULL HAVING count(*) > 0
), noted AS MATERIALIZED (
    SELECT pg_notify(outlast_channel_v1(), 'jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT queue, min(position) AS first, count(*)
          FROM inserted WHERE position IS NOT NULL AND :notify::boolean GROUP BY queue) q
)
SELECT s.id, s.id IS NOT NULL AS created
FROM numbered n LEFT JOIN stored s ON s.ord = n.ord, (SELECT count(*) FROM noted) AS told, (SELECT count(*) FROM labelled) AS done
ORDER BY n.ord

-- name: add_lanes
SELECT known FROM outlast_add_lanes_v1($1::text[], $2::text[], $3::text::smallint[])

-- name: free_keys
SELECT outlast_free_keys_v1($1::text[])

-- name: replace
SELECT id, replaced FROM outlast_replace_v1(
    $1::text, $2::text[], $3::text, $4::float8, $5::float8, $6::float8, $7::float8, $8::boolean, $9::boolean, $10::boolean,
    $11::text, $12::integer, $13::text, $14::bigint, $15::text)

-- name: take_window
SELECT outlast_take_window_v1($1::text, $2::text, $3::float8) AS is_taken

-- name: window
-- Find the job of a window that another transaction has taken.
SELECT w.job_id, coalesce(j.args = $3::text, true) AS same_args
FROM outlast_windows w LEFT JOIN outlast_jobs j ON j.id = w.job_id WHERE w.key = $1::text AND w.task = $2::text AND w.job_id <> 0

-- name: fill_window
SELECT outlast_fill_window_v1($1::text, $2::text, $3::bigint)

-- name: key_holders
-- Find the unfinished jobs that have these keys. It is enough that a job with the key was unfinished at some moment
-- during the call. The digest is that of the stored arguments.
--
-- The caller reports a job found here as accepted, so it must be as durable as a stored one. A commit that still waits
-- for a synchronous standby may be visible, and a transaction that only reads does not wait at its commit. So this
-- statement writes an empty message to the WAL: its commit waits, and once the message has reached the standby, so has
-- the job.
SELECT key, id, task, encode(sha256(convert_to(args, 'UTF8')), 'hex') AS args_digest,
       pg_logical_emit_message(true, 'outlast', ''::text)::text AS noted
FROM outlast_jobs
WHERE key = ANY ($1::text[]) AND key IS NOT NULL AND ended_at IS NULL
