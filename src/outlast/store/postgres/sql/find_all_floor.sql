-- The id of the last of $2 rows, from the id $1 downwards. Reads only.
SELECT id FROM outlast_jobs WHERE id <= $1 ORDER BY id DESC LIMIT 1 OFFSET $2::integer - 1
