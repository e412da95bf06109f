-- Ids of jobs among the newest $5 rows, newest first: what a look reads ends with the last one that is asked for. $6: the
-- state, $8: the part of the queue, $7: how many. $1: the largest id. $2 to $4: queue, task and tenant. What is not set is
-- NULL. Reads only.
SELECT id FROM (
    SELECT id, queue, task, tenant, state, position, solo FROM outlast_jobs
    WHERE id <= $1 ORDER BY id DESC LIMIT $5::integer) j
WHERE ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR task = $3)
  AND ($4::text IS NULL OR tenant = $4)
  AND ($6::text IS NULL OR state = $6)
  AND ($8::text IS NULL
       OR $8 = CASE WHEN position IS NOT NULL THEN 'line' WHEN solo = 0 THEN 'timed' ELSE 'suspects' END)
ORDER BY id DESC LIMIT $7
