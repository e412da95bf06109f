-- Store jobs of which some have labels, and some may have keys: enqueue_keyed.sql with the labels of what was stored, each
-- job's as a JSON array. A statement of its own, so that jobs without labels do not pay for the second table. Where an unfinished job has the key, nothing is inserted and
-- the existing row is neither locked nor touched: the caller looks it up afterwards, by a statement
-- (and snapshot) of its own, and comes back here should it have ended in between. The unique index
-- decides between two enqueues of one key: the second waits for the first to commit. Ids and
-- positions follow the order in which the jobs were given; rows go in by the order of their keys,
-- so that two batches with the same keys wait in the same order.
WITH numbered AS MATERIALIZED (
    SELECT h.*, nextval('outlast_jobs_id_seq') AS id, nextval('outlast_position_seq') AS place,
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
        id, task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout,
        expires_at, keep, key)
    SELECT n.id, n.task, n.queue, n.args, n.priority, n.due, statement_timestamp(),
           CASE WHEN n.due <= statement_timestamp() THEN n.place END,
           n.tenant, n.policy, n.timeout, n.ends, n.keep, n.key
    FROM numbered n ORDER BY n.key, n.ord
    ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
    RETURNING id, queue, position
), labelled AS (
    INSERT INTO outlast_labels (job_id, label)
    SELECT n.id, l.label FROM numbered n JOIN inserted i ON i.id = n.id
    CROSS JOIN LATERAL json_array_elements_text(n.labels::json) AS l (label)
    ON CONFLICT (job_id, label) DO NOTHING
), noted AS MATERIALIZED (
    SELECT pg_notify(outlast_channel_v1(), 'jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT queue, min(position) AS first, count(*)
          FROM inserted WHERE position IS NOT NULL AND $13 GROUP BY queue) q
)
SELECT n.id, i.id IS NOT NULL AS created
FROM numbered n LEFT JOIN inserted i ON i.id = n.id, (SELECT count(*) FROM noted) AS done
ORDER BY n.ord
