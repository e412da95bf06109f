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
