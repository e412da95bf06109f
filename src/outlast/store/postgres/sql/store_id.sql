-- The id of this schema. It never changes.
SELECT store_id::text FROM outlast_schema WHERE number = 1
