-- The applied migrations. Reads only.
SELECT number, name, checksum, compatible_from,
       extract(epoch FROM applied_at)::float8 AS applied_at
FROM outlast_schema ORDER BY number
