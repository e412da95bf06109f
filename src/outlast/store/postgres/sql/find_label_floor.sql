-- The job of the last of $2 rows of the label $3, from the id $1 downwards. Reads only.
SELECT job_id FROM outlast_labels WHERE label = $3 AND job_id <= $1
ORDER BY label DESC, job_id DESC LIMIT 1 OFFSET $2::integer - 1
