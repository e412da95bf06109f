-- Counters of workers: noted, added up and read. functions/NAME.sql argues why a call of a function is right against
-- a concurrent claim, reap and late worker.

-- name: note
-- Store what a worker has counted since its last call ($1: a JSON array of rows), at the present minute of the
-- store's clock. A repeated call, as after a lost reply, finds its rows by their key and changes nothing; while the
-- first call is still under way, it waits for that. No other worker writes rows with this worker's id, so no worker
-- waits for another.
INSERT INTO outlast_minutes
SELECT r.* FROM jsonb_array_elements($1::text::jsonb) AS e (counted)
CROSS JOIN LATERAL jsonb_populate_record(NULL::outlast_minutes, e.counted || jsonb_build_object(
    'at', floor(extract(epoch FROM statement_timestamp()) / 60)::bigint * 60)) AS r
ON CONFLICT DO NOTHING

-- name: merge
SELECT outlast_merge_minutes_v1($1, $2, $3, $4)

-- name: minutes
-- Read the attempts that workers have counted in the last :seconds seconds, in steps of :step. At most :most rows are
-- read, the newest: three parts of the index, newest first, are merged up to that. Each row brings the server's now,
-- how many rows were read, and the time of the oldest of them. :by_queue and :by_task: whether to tell queues and
-- tasks apart or to add them up under the empty name. :queue and :task: NULL lets all pass. :detail
-- (store/minutes.py): numbers by step only; or also lengths over all steps, in rows of their own; or everything.
-- Reads only.
WITH span AS MATERIALIZED (
    SELECT extract(epoch FROM statement_timestamp())::float8 AS now
), seen AS MATERIALIZED (
    SELECT * FROM (
        (SELECT m.* FROM outlast_minutes m
         WHERE m.level = 'worker' AND m.at BETWEEN ((SELECT now FROM span) - :seconds)::bigint AND (SELECT now FROM span)::bigint
         ORDER BY m.at DESC LIMIT :most)
        UNION ALL
        (SELECT m.* FROM outlast_minutes m
         WHERE m.level = 'minute' AND m.at BETWEEN ((SELECT now FROM span) - :seconds)::bigint AND (SELECT now FROM span)::bigint
         ORDER BY m.at DESC LIMIT :most)
        UNION ALL
        (SELECT m.* FROM outlast_minutes m
         WHERE m.level = 'hour' AND m.at BETWEEN ((SELECT now FROM span) - :seconds)::bigint AND (SELECT now FROM span)::bigint
         ORDER BY m.at DESC LIMIT :most)) parts
    ORDER BY at DESC LIMIT :most
)
SELECT s.now, (SELECT count(*) FROM seen) AS read, (SELECT min(at) FROM seen) AS oldest, c.*
FROM span s LEFT JOIN (
    SELECT n.queue, n.task, n.outcome, array_agg(n.step) AS steps, array_agg(n.jobs) AS jobs,
           '{}'::float8[] AS seconds, '{}'::float8[] AS waited, '{}'::float8[] AS ran, '{}'::float8[] AS due,
           '{}'::bigint[] AS durations, '{}'::bigint[] AS waits
    FROM (
        SELECT m.at - m.at % :step AS step, CASE WHEN :by_queue::boolean THEN m.queue ELSE '' END AS queue,
               CASE WHEN :by_task::boolean THEN m.task ELSE '' END AS task, m.outcome, sum(m.jobs)::bigint AS jobs
        FROM seen m
        WHERE :detail::text <> 'all' AND m.kind = 'attempt' AND (:queue::text IS NULL OR m.queue = :queue) AND (:task::text IS NULL OR m.task = :task)
        GROUP BY 1, 2, 3, 4) n
    GROUP BY n.queue, n.task, n.outcome
    UNION ALL
    SELECT CASE WHEN :by_queue THEN m.queue ELSE '' END, CASE WHEN :by_task THEN m.task ELSE '' END, m.outcome,
           '{}', '{}', '{}', '{}', '{}', '{}',
           ARRAY[sum(m.d1), sum(m.d2), sum(m.d3), sum(m.d4), sum(m.d5), sum(m.d6), sum(m.d7),
                 sum(m.d8), sum(m.d9), sum(m.d10), sum(m.d11)]::bigint[],
           ARRAY[sum(m.w1), sum(m.w2), sum(m.w3), sum(m.w4), sum(m.w5), sum(m.w6), sum(m.w7),
                 sum(m.w8), sum(m.w9), sum(m.w10), sum(m.w11)]::bigint[]
    FROM seen m
    WHERE :detail = 'lengths' AND m.kind = 'attempt' AND (:queue::text IS NULL OR m.queue = :queue) AND (:task::text IS NULL OR m.task = :task)
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT n.queue, n.task, n.outcome, array_agg(n.step), array_agg(n.jobs),
           array_agg(n.seconds), array_agg(n.waited),
           array_agg((n.d1 + n.d2 + n.d3 + n.d4 + n.d5 + n.d6 + n.d7 + n.d8 + n.d9 + n.d10 + n.d11)::float8),
           array_agg((n.w1 + n.w2 + n.w3 + n.w4 + n.w5 + n.w6 + n.w7 + n.w8 + n.w9 + n.w10 + n.w11)::float8),
           ARRAY[sum(n.d1), sum(n.d2), sum(n.d3), sum(n.d4), sum(n.d5), sum(n.d6), sum(n.d7),
                 sum(n.d8), sum(n.d9), sum(n.d10), sum(n.d11)]::bigint[],
           ARRAY[sum(n.w1), sum(n.w2), sum(n.w3), sum(n.w4), sum(n.w5), sum(n.w6), sum(n.w7),
                 sum(n.w8), sum(n.w9), sum(n.w10), sum(n.w11)]::bigint[]
    FROM (
        SELECT m.at - m.at % :step AS step, CASE WHEN :by_queue::boolean THEN m.queue ELSE '' END AS queue,
               CASE WHEN :by_task::boolean THEN m.task ELSE '' END AS task, m.outcome,
               sum(m.jobs)::bigint AS jobs, sum(m.seconds) AS seconds, sum(m.waited) AS waited,
               sum(m.d1) AS d1, sum(m.d2) AS d2, sum(m.d3) AS d3, sum(m.d4) AS d4, sum(m.d5) AS d5, sum(m.d6) AS d6,
               sum(m.d7) AS d7, sum(m.d8) AS d8, sum(m.d9) AS d9, sum(m.d10) AS d10, sum(m.d11) AS d11,
               sum(m.w1) AS w1, sum(m.w2) AS w2, sum(m.w3) AS w3, sum(m.w4) AS w4, sum(m.w5) AS w5, sum(m.w6) AS w6,
               sum(m.w7) AS w7, sum(m.w8) AS w8, sum(m.w9) AS w9, sum(m.w10) AS w10, sum(m.w11) AS w11
        FROM seen m
        WHERE :detail = 'all' AND m.kind = 'attempt' AND (:queue::text IS NULL OR m.queue = :queue) AND (:task::text IS NULL OR m.task = :task)
        GROUP BY 1, 2, 3, 4) n
    GROUP BY n.queue, n.task, n.outcome) c ON true

-- name: totals
-- Read all that workers have counted since the store was made: the totals, and what was not added to them yet, :most
-- rows of each at most. One snapshot, so that a row that moves from one to the other counts once. Reads only.
SELECT m.kind, m.queue, m.task, m.outcome,
       sum(m.jobs)::bigint AS jobs, sum(m.firsts)::bigint AS firsts, sum(m.seconds)::float8 AS seconds, sum(m.waited)::float8 AS waited,
       sum(m.d1)::bigint AS d1, sum(m.d2)::bigint AS d2, sum(m.d3)::bigint AS d3, sum(m.d4)::bigint AS d4, sum(m.d5)::bigint AS d5,
       sum(m.d6)::bigint AS d6, sum(m.d7)::bigint AS d7, sum(m.d8)::bigint AS d8, sum(m.d9)::bigint AS d9, sum(m.d10)::bigint AS d10,
       sum(m.d11)::bigint AS d11, sum(m.w1)::bigint AS w1, sum(m.w2)::bigint AS w2, sum(m.w3)::bigint AS w3, sum(m.w4)::bigint AS w4,
       sum(m.w5)::bigint AS w5, sum(m.w6)::bigint AS w6, sum(m.w7)::bigint AS w7, sum(m.w8)::bigint AS w8, sum(m.w9)::bigint AS w9,
       sum(m.w10)::bigint AS w10, sum(m.w11)::bigint AS w11
FROM ((SELECT * FROM outlast_minutes WHERE level = 'total'
       ORDER BY level, worker_id, batch, kind, queue, task, outcome LIMIT :most)
      UNION ALL
      (SELECT * FROM outlast_minutes WHERE level = 'worker' ORDER BY level, at DESC LIMIT :most)) m
GROUP BY m.kind, m.queue, m.task, m.outcome
ORDER BY m.kind, m.queue, m.task, m.outcome
