-- Counters of workers: noted, added up (store/minutes.py) and read. Rows are stored and deleted, and never change.

-- name: note
-- Store counts (:rows, a JSON array), at the present minute of the store's clock unless they bring a time. A repeated
-- call, as after a lost reply, finds its rows by their key and changes nothing; while the first call is still under
-- way, it waits for that. No other worker writes rows with this worker's id, so no worker waits for another.
INSERT INTO outlast_minutes
SELECT r.* FROM jsonb_array_elements(:rows::text::jsonb) AS e (counted)
CROSS JOIN LATERAL jsonb_populate_record(NULL::outlast_minutes, jsonb_build_object(
    'at', floor(date_part('epoch', statement_timestamp()) / 60)::bigint * 60) || e.counted) AS r
ON CONFLICT DO NOTHING

-- name: turn
-- Return whether this transaction may add up counts: it then holds a lock to its end, so that no other does so
-- meanwhile. Nothing waits: if a worker is stopped in between, the others add up nothing until the server ends its idle
-- transaction.
SELECT pg_try_advisory_xact_lock(hashtextextended('outlast:minutes', 0::bigint)) AS is_mine

-- name: take
-- Take out rows of a level that are :seconds old, the oldest :most, by the index.
DELETE FROM outlast_minutes m WHERE m.ctid = ANY (ARRAY(
    SELECT o.ctid FROM outlast_minutes o
    WHERE o.level = :level::text AND o.at < floor(date_part('epoch', statement_timestamp()))::bigint - :seconds::bigint
    ORDER BY o.at LIMIT :most))
RETURNING m.*

-- name: take_sums
-- Take out the sums that have the keys of these rows, each by the primary key.
DELETE FROM outlast_minutes m USING jsonb_populate_recordset(NULL::outlast_minutes, :rows::text::jsonb) r
WHERE m.level = r.level AND m.worker_id = 0 AND m.batch = r.batch AND m.kind = r.kind AND m.queue = r.queue
  AND m.task = r.task AND m.outcome = r.outcome
RETURNING m.*

-- name: minutes
-- Read at most :most rows, the newest of two parts of the index. Each row of the answer has the server's now, how many
-- rows were read, and the time of the oldest. :by_queue and :by_task: whether to tell queues and tasks apart or to add
-- them up under the empty name. :queue and :task: NULL lets all pass.
WITH span AS MATERIALIZED (
    SELECT date_part('epoch', statement_timestamp()) AS now
), seen AS MATERIALIZED (
    SELECT m.* FROM span s CROSS JOIN unnest('{worker,minute}'::text[]) AS l (level) CROSS JOIN LATERAL (
        SELECT m.* FROM outlast_minutes m
        WHERE m.level = l.level AND m.at BETWEEN (s.now - :seconds)::bigint AND s.now::bigint
        ORDER BY m.at DESC LIMIT :most) m
    ORDER BY m.at DESC LIMIT :most
)
SELECT s.now, (SELECT count(*) FROM seen) AS read, (SELECT min(at) FROM seen) AS oldest, c.*
FROM span s LEFT JOIN (
    SELECT CASE WHEN :by_queue::boolean THEN m.queue ELSE '' END AS queue,
           CASE WHEN :by_task::boolean THEN m.task ELSE '' END AS task, m.outcome,
           to_json(array_agg(m.at)) AS at, to_json(array_agg(m.jobs)) AS jobs, to_json(array_agg(m.seconds)) AS seconds,
           to_json(array_agg(m.waited)) AS waited,
           to_json(array_agg(m.d1 + m.d2 + m.d3 + m.d4 + m.d5 + m.d6 + m.d7 + m.d8 + m.d9 + m.d10 + m.d11)) AS ran,
           to_json(array_agg(m.w1 + m.w2 + m.w3 + m.w4 + m.w5 + m.w6 + m.w7 + m.w8 + m.w9 + m.w10 + m.w11)) AS due,
           json_build_array(sum(m.d1), sum(m.d2), sum(m.d3), sum(m.d4), sum(m.d5), sum(m.d6), sum(m.d7),
                            sum(m.d8), sum(m.d9), sum(m.d10), sum(m.d11)) AS durations,
           json_build_array(sum(m.w1), sum(m.w2), sum(m.w3), sum(m.w4), sum(m.w5), sum(m.w6), sum(m.w7),
                            sum(m.w8), sum(m.w9), sum(m.w10), sum(m.w11)) AS waits
    FROM seen m
    WHERE m.kind = 'attempt' AND (:queue::text IS NULL OR m.queue = :queue) AND (:task::text IS NULL OR m.task = :task)
    GROUP BY 1, 2, 3) c ON true
