-- Note an applied migration, in the transaction that applied it, under the advisory lock that
-- admits one migrator. The store's id is drawn with the first step.
INSERT INTO outlast_schema (number, name, checksum, compatible_from, applied_at, store_id)
VALUES ($1::integer, $2, $3, $4, clock_timestamp(), CASE WHEN $1::integer = 1 THEN gen_random_uuid() END)
RETURNING extract(epoch FROM applied_at)::float8
