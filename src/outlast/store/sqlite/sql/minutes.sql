-- Counters of workers: sqlite/minutes.py runs these statements, writes under the write lock, so that no two overlap.
-- Rows are stored and deleted, and never change; store/minutes.py adds them up.

-- name: note
-- A repeated batch, as after a lost reply, changes nothing.
INSERT INTO outlast_minutes (
    level, worker_id, batch, at, kind, queue, task, outcome,
    jobs, firsts, seconds, waited, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5,
    w6, w7, w8, w9, w10, w11)
SELECT json_extract(e.value, '$.level'), json_extract(e.value, '$.worker_id'), json_extract(e.value, '$.batch'),
       json_extract(e.value, '$.at'), json_extract(e.value, '$.kind'), json_extract(e.value, '$.queue'),
       json_extract(e.value, '$.task'), json_extract(e.value, '$.outcome'), json_extract(e.value, '$.jobs'),
       json_extract(e.value, '$.firsts'), json_extract(e.value, '$.seconds'), json_extract(e.value, '$.waited'),
       json_extract(e.value, '$.d1'), json_extract(e.value, '$.d2'), json_extract(e.value, '$.d3'),
       json_extract(e.value, '$.d4'), json_extract(e.value, '$.d5'), json_extract(e.value, '$.d6'),
       json_extract(e.value, '$.d7'), json_extract(e.value, '$.d8'), json_extract(e.value, '$.d9'),
       json_extract(e.value, '$.d10'), json_extract(e.value, '$.d11'), json_extract(e.value, '$.w1'),
       json_extract(e.value, '$.w2'), json_extract(e.value, '$.w3'), json_extract(e.value, '$.w4'),
       json_extract(e.value, '$.w5'), json_extract(e.value, '$.w6'), json_extract(e.value, '$.w7'),
       json_extract(e.value, '$.w8'), json_extract(e.value, '$.w9'), json_extract(e.value, '$.w10'),
       json_extract(e.value, '$.w11')
FROM json_each(:rows) AS e WHERE true
ON CONFLICT DO NOTHING
-- name: take
DELETE FROM outlast_minutes WHERE rowid IN (
    SELECT rowid FROM outlast_minutes INDEXED BY outlast_minutes_at
    WHERE level = :level AND at < :now - :seconds ORDER BY at LIMIT :most)
RETURNING *
-- name: take_sums
DELETE FROM outlast_minutes WHERE rowid IN (
    SELECT m.rowid FROM json_each(:rows) AS e CROSS JOIN outlast_minutes AS m
    ON m.level = json_extract(e.value, '$.level') AND m.worker_id = 0 AND m.batch = json_extract(e.value, '$.batch')
    AND m.kind = json_extract(e.value, '$.kind') AND m.queue = json_extract(e.value, '$.queue')
    AND m.task = json_extract(e.value, '$.task') AND m.outcome = json_extract(e.value, '$.outcome'))
RETURNING *
-- name: minutes
WITH seen (number, at) AS MATERIALIZED (
    SELECT * FROM (
        SELECT * FROM (
            SELECT rowid, at FROM outlast_minutes INDEXED BY outlast_minutes_at
            WHERE level = 'worker' AND at BETWEEN :now - :seconds AND :now ORDER BY at DESC LIMIT :most)
        UNION ALL
        SELECT * FROM (
            SELECT rowid, at FROM outlast_minutes INDEXED BY outlast_minutes_at
            WHERE level = 'minute' AND at BETWEEN :now - :seconds AND :now ORDER BY at DESC LIMIT :most))
    ORDER BY at DESC LIMIT :most
)
SELECT :now AS now, (SELECT count(*) FROM seen) AS read, (SELECT min(at) FROM seen) AS oldest,
       iif(:by_queue, m.queue, '') AS queue, iif(:by_task, m.task, '') AS task, m.outcome AS outcome,
       json_group_array(m.at) AS at, json_group_array(m.jobs) AS jobs, json_group_array(m.seconds) AS seconds,
       json_group_array(m.waited) AS waited,
       json_group_array(m.d1 + m.d2 + m.d3 + m.d4 + m.d5 + m.d6 + m.d7 + m.d8 + m.d9 + m.d10 + m.d11) AS ran,
       json_group_array(m.w1 + m.w2 + m.w3 + m.w4 + m.w5 + m.w6 + m.w7 + m.w8 + m.w9 + m.w10 + m.w11) AS due,
       json_array(sum(m.d1), sum(m.d2), sum(m.d3), sum(m.d4), sum(m.d5), sum(m.d6), sum(m.d7), sum(m.d8), sum(m.d9),
                  sum(m.d10), sum(m.d11)) AS durations,
       json_array(sum(m.w1), sum(m.w2), sum(m.w3), sum(m.w4), sum(m.w5), sum(m.w6), sum(m.w7), sum(m.w8), sum(m.w9),
                  sum(m.w10), sum(m.w11)) AS waits
FROM seen CROSS JOIN outlast_minutes AS m ON m.rowid = seen.number
WHERE m.kind = 'attempt' AND (:queue IS NULL OR m.queue = :queue) AND (:task IS NULL OR m.task = :task)
GROUP BY 4, 5, 6
UNION ALL
SELECT :now, (SELECT count(*) FROM seen), (SELECT min(at) FROM seen), NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
