-- Store jobs. Must also run inside a caller's own transaction: nothing begins or commits.
-- Why a call of a function is right against a concurrent claim, reap and late worker: functions/NAME.sql.

-- name: many
-- Store jobs without keys: one statement, so all or none, in the order in which they were given:
-- ids and positions are drawn in that order. Rows that no other session can see yet race with nothing. A job
-- that is due gets its place in the line, another gets none until an exchange finds it due. The
-- statement's own time counts, not that of the caller's transaction, which may be long open.
WITH inserted AS (
    INSERT INTO outlast_jobs (
        task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout, expires_at, keep)
    SELECT n.task, n.queue, n.args, n.priority, n.due, statement_timestamp(),
           CASE WHEN n.due <= statement_timestamp() THEN nextval('outlast_position_seq') END,
           n.tenant, n.policy, n.timeout, n.ends, n.keep
    FROM (SELECT h.*, coalesce(to_timestamp(h.run_at),
                               statement_timestamp() + h.delay * interval '1 second') AS due,
           coalesce(to_timestamp(h.expires_at),
                    statement_timestamp() + h.expires * interval '1 second') AS ends
          FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::float8[],
                      $6::float8[], $7::text[], $8::text[], $9::float8[], $10::float8[], $11::float8[],
                      $12::float8[])
               WITH ORDINALITY AS h (
                   task, queue, args, priority, delay, run_at, tenant, policy, timeout, expires, expires_at,
                   keep, ord)
          ORDER BY h.ord) n
    RETURNING id, queue, position
), noted AS MATERIALIZED (
    SELECT pg_notify(outlast_channel_v1(), 'jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT queue, min(position) AS first, count(*)
          FROM inserted WHERE position IS NOT NULL AND $13 GROUP BY queue) q
)
SELECT i.id FROM inserted i, (SELECT count(*) FROM noted) AS done ORDER BY i.id

-- name: alike
-- Store jobs that differ in their arguments only, have no keys and are due at once. All or none, in their order: ids and positions are drawn as the rows come out of the text. Rows
-- that no other session can see yet race with nothing. The arguments come as one text with the character 31
-- between, which no JSON holds: an array would be dearer to write and to read. Listeners are told
-- where the function's argument is computed: once, however many the rows; so before any of these has its
-- position, and the notification is known by one that no job gets.
-- Nothing here depends on what the tables hold, so a plan may be kept for good.
INSERT INTO outlast_jobs (
    task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout)
SELECT $1::text, $2::text, h.args, $4::smallint, statement_timestamp(), statement_timestamp(),
       nextval('outlast_position_seq'), $5::text, $6::text, $7::float8
FROM string_to_table(
         CASE WHEN $8::boolean THEN $3::text || pg_notify(outlast_channel_v1(),
                  'jobs:' || nextval('outlast_position_seq') || ':' || $9::integer || ':' || left($2::text, 1000))::text
              ELSE $3::text END,
         chr(31)) AS h (args)
RETURNING id

-- name: one
-- Store one job that has no key and is due at once, as most are: `alike` for one row, which
-- needs no set of rows to be made and read. A row that no other session can see yet races with nothing, and
-- nothing here depends on what the tables hold, so a plan may be kept for good.
INSERT INTO outlast_jobs (
    task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout)
VALUES ($1::text, $2::text, $3::text, $4::smallint, statement_timestamp(), statement_timestamp(),
        nextval('outlast_position_seq'), $5::text, $6::text, $7::float8)
RETURNING id,
    CASE WHEN $8::boolean THEN pg_notify(outlast_channel_v1(), 'jobs:' || position || ':1:' || left($2::text, 1000))::text
    END AS noted

-- name: one_with_key
-- Store one job with a key; no row where an unfinished job has that key, which is neither locked nor
-- touched: the caller goes on as for many (`keyed`). The unique index decides between two
-- enqueues of one key: the second waits for the first to commit. Nothing is looked up, so a plan
-- may be kept for good.
INSERT INTO outlast_jobs (
    task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout, expires_at,
    keep, key)
SELECT $1::text, $2::text, $3::text, $4::smallint, d.due, statement_timestamp(),
       CASE WHEN d.due <= statement_timestamp() THEN nextval('outlast_position_seq') END,
       $7::text, $8::text, $9::float8,
       coalesce(to_timestamp($11::float8), statement_timestamp() + $10::float8 * interval '1 second'),
       $12::float8, $14::text
FROM (SELECT coalesce(to_timestamp($6::float8),
                      statement_timestamp() + $5::float8 * interval '1 second') AS due) d
ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
RETURNING id,
    CASE WHEN $13::boolean AND position IS NOT NULL
         THEN pg_notify(outlast_channel_v1(), 'jobs:' || position || ':1:' || left(queue, 1000))::text END AS noted

-- name: keyed
-- Store jobs of which some have keys, or labels ($15: each job's as a JSON array, NULL: it has none). Where an unfinished job has the key, nothing is inserted and
-- the existing row is neither locked nor touched: the caller looks it up afterwards, by a statement
-- (and snapshot) of its own, and comes back here should it have ended in between. The unique index
-- decides between two enqueues of one key: the second waits for the first to commit. Positions
-- follow the order in which the jobs were given. Rows, and with them ids, go in by the order of their keys,
-- so that two batches with the same keys wait in the same order. No statement that enqueues names an id: a
-- role that may do so could take those that come next, and no other job could be stored.
WITH numbered AS MATERIALIZED (
    SELECT h.*, nextval('outlast_position_seq') AS place,
           coalesce(to_timestamp(h.run_at),
                    statement_timestamp() + h.delay * interval '1 second') AS due,
           coalesce(to_timestamp(h.expires_at),
                    statement_timestamp() + h.expires * interval '1 second') AS ends
    FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::float8[], $6::float8[],
                $7::text[], $8::text[], $9::float8[], $10::float8[],
                $11::float8[], $12::float8[], $14::text[], $15::text[])
         WITH ORDINALITY AS h (
             task, queue, args, priority, delay, run_at, tenant, policy, timeout, expires, expires_at,
             keep, key, labels, ord)
), inserted AS (
    INSERT INTO outlast_jobs (
        task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout,
        expires_at, keep, key)
    SELECT n.task, n.queue, n.args, n.priority, n.due, statement_timestamp(),
           CASE WHEN n.due <= statement_timestamp() THEN n.place END,
           n.tenant, n.policy, n.timeout, n.ends, n.keep, n.key
    FROM numbered n ORDER BY n.key, n.ord
    ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
    RETURNING id, key, queue, position
), stored AS MATERIALIZED (
    SELECT i.id, n.ord, n.labels
    FROM (SELECT n.*, coalesce(n.key, '') AS same, row_number() OVER (PARTITION BY n.key ORDER BY n.ord) AS nth
          FROM numbered n) n
    JOIN (SELECT i.id, coalesce(i.key, '') AS same, row_number() OVER (PARTITION BY i.key ORDER BY i.id) AS nth
          FROM inserted i) i ON i.same = n.same AND i.nth = n.nth
), labelled AS (
    INSERT INTO outlast_labels (job_id, label)
    SELECT s.id, l.label FROM stored s CROSS JOIN LATERAL json_array_elements_text(s.labels::json) AS l (label)
    ON CONFLICT (job_id, label) DO NOTHING
), noted AS MATERIALIZED (
    SELECT pg_notify(outlast_channel_v1(), 'jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT queue, min(position) AS first, count(*)
          FROM inserted WHERE position IS NOT NULL AND $13 GROUP BY queue) q
)
SELECT s.id, s.id IS NOT NULL AS created
FROM numbered n LEFT JOIN stored s ON s.ord = n.ord, (SELECT count(*) FROM noted) AS done
ORDER BY n.ord

-- name: free_keys
SELECT outlast_free_keys_v1($1::text[])

-- name: key_holders
-- The unfinished jobs that have these keys. The answer may be out of date at once, which does no harm:
-- that a job with the key was unfinished at some moment of the call is enough.
-- The digest is of the arguments as they are stored.
--
-- What is found is called accepted, so it must be as durable as what is stored. A commit whose client was lost
-- while it waited for a synchronous standby is visible before the standby has it, and one that only reads waits for
-- nothing. So this writes to the log: a message that means nothing, and nothing else. Its commit waits as any
-- does, and the log arrives in its order: with the message, the job is there.
SELECT key, id, task, encode(sha256(convert_to(args, 'UTF8')), 'hex') AS args_digest,
       pg_logical_emit_message(true, 'outlast', ''::text)::text AS noted
FROM outlast_jobs
WHERE key = ANY ($1::text[]) AND key IS NOT NULL AND ended_at IS NULL
