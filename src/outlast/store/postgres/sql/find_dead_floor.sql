-- The id of the last of $2 dead jobs, from the id $1 downwards. Reads only.
SELECT id FROM outlast_jobs WHERE state = 'dead' AND id <= $1 ORDER BY id DESC LIMIT 1 OFFSET $2::integer - 1
