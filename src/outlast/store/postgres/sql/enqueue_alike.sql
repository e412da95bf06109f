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
