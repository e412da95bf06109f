-- What a worker has counted since it did this last ($1: a JSON array of rows), at the minute that it is by the
-- store's clock. Asked for again, as after a lost reply, it finds its rows by their key and changes nothing;
-- while the first is still under way it waits for that. No other worker writes rows with this worker's id, so
-- no worker waits for another.
INSERT INTO outlast_minutes
SELECT r.* FROM jsonb_array_elements($1::text::jsonb) AS e (counted)
CROSS JOIN LATERAL jsonb_populate_record(NULL::outlast_minutes, e.counted || jsonb_build_object(
    'at', floor(extract(epoch FROM statement_timestamp()) / 60)::bigint * 60)) AS r
ON CONFLICT DO NOTHING
