-- Store jobs of which some have keys. Where an unfinished job has the key, nothing is inserted and
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
                $11::float8[], $12::float8[], $14::text[])
         WITH ORDINALITY AS h (
             task, queue, args, priority, delay, run_at, tenant, policy, timeout, expires, expires_at,
             keep, key, ord)
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
    SELECT i.id, n.ord
    FROM (SELECT n.*, coalesce(n.key, '') AS same, row_number() OVER (PARTITION BY n.key ORDER BY n.ord) AS nth
          FROM numbered n) n
    JOIN (SELECT i.id, coalesce(i.key, '') AS same, row_number() OVER (PARTITION BY i.key ORDER BY i.id) AS nth
          FROM inserted i) i ON i.same = n.same AND i.nth = n.nth
), noted AS MATERIALIZED (
    SELECT pg_notify(outlast_channel_v1(), 'jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT queue, min(position) AS first, count(*)
          FROM inserted WHERE position IS NOT NULL AND $13 GROUP BY queue) q
)
SELECT s.id, s.id IS NOT NULL AS created
FROM numbered n LEFT JOIN stored s ON s.ord = n.ord, (SELECT count(*) FROM noted) AS done
ORDER BY n.ord
