-- Store one job that has no key and is due at once, as most are: enqueue_alike.sql for one row, which
-- needs no set of rows to be made and read. A row that no other session can see yet races with nothing, and
-- nothing here depends on what the tables hold, so a plan may be kept for good.
INSERT INTO outlast_jobs (
    task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout)
VALUES ($1::text, $2::text, $3::text, $4::smallint, statement_timestamp(), statement_timestamp(),
        nextval('outlast_position_seq'), $5::text, $6::text, $7::float8)
RETURNING id,
    CASE WHEN $8::boolean THEN pg_notify(outlast_channel_v1(), 'jobs:' || position || ':1:' || left($2::text, 1000))::text
    END AS noted
