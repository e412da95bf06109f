-- Store one job with a key; no row where an unfinished job has that key, which is neither locked nor
-- touched: the caller goes on as for many (enqueue_keyed.sql). The unique index decides between two
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
