-- The attempts that workers have counted in the last $1 seconds, in steps of $2; at most $3 rows, the newest,
-- are read: three parts of the index, newest first, are merged up to that. Each row brings the server's now, how many
-- rows were read, and the time of the oldest of them. $4 and $5: whether queues and tasks are told apart, or else added
-- up under no name; $6 and $7: of which queue and task, NULL: of all. Reads only.
WITH span AS MATERIALIZED (
    SELECT extract(epoch FROM statement_timestamp())::float8 AS now
), seen AS MATERIALIZED (
    SELECT * FROM (
        (SELECT m.* FROM outlast_minutes m
         WHERE m.level = 'worker' AND m.at BETWEEN ((SELECT now FROM span) - $1)::bigint AND (SELECT now FROM span)::bigint
         ORDER BY m.at DESC LIMIT $3)
        UNION ALL
        (SELECT m.* FROM outlast_minutes m
         WHERE m.level = 'minute' AND m.at BETWEEN ((SELECT now FROM span) - $1)::bigint AND (SELECT now FROM span)::bigint
         ORDER BY m.at DESC LIMIT $3)
        UNION ALL
        (SELECT m.* FROM outlast_minutes m
         WHERE m.level = 'hour' AND m.at BETWEEN ((SELECT now FROM span) - $1)::bigint AND (SELECT now FROM span)::bigint
         ORDER BY m.at DESC LIMIT $3)) parts
    ORDER BY at DESC LIMIT $3
)
SELECT s.now, (SELECT count(*) FROM seen) AS read, (SELECT min(at) FROM seen) AS oldest, c.*
FROM span s LEFT JOIN (
    SELECT m.at - m.at % $2 AS step, m.kind, CASE WHEN $4::boolean THEN m.queue ELSE '' END AS queue,
           CASE WHEN $5::boolean THEN m.task ELSE '' END AS task, m.outcome,
           sum(m.jobs)::bigint, sum(m.firsts)::bigint, sum(m.seconds)::float8, sum(m.waited)::float8,
           sum(m.d1)::bigint, sum(m.d2)::bigint, sum(m.d3)::bigint, sum(m.d4)::bigint, sum(m.d5)::bigint,
           sum(m.d6)::bigint, sum(m.d7)::bigint, sum(m.d8)::bigint, sum(m.d9)::bigint, sum(m.d10)::bigint,
           sum(m.d11)::bigint, sum(m.w1)::bigint, sum(m.w2)::bigint, sum(m.w3)::bigint, sum(m.w4)::bigint,
           sum(m.w5)::bigint, sum(m.w6)::bigint, sum(m.w7)::bigint, sum(m.w8)::bigint, sum(m.w9)::bigint,
           sum(m.w10)::bigint, sum(m.w11)::bigint
    FROM seen m
    WHERE m.kind = 'attempt' AND ($6::text IS NULL OR m.queue = $6) AND ($7::text IS NULL OR m.task = $7)
    GROUP BY 1, 2, 3, 4, 5) c ON true
ORDER BY c.step, c.queue, c.task, c.outcome
