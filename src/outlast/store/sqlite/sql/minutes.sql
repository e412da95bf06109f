-- Counters of workers: sqlite/minutes.py runs these statements, writes under the write lock, so that no two overlap.
-- postgres/sql/functions/outlast_merge_minutes_v1.sql defines a merge.

-- name: note
-- A repeated batch, as after a lost reply, changes nothing.
INSERT INTO outlast_minutes (
    level, worker_id, batch, at, kind, queue, task, outcome,
    jobs, firsts, seconds, waited, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5,
    w6, w7, w8, w9, w10, w11)
VALUES (
    'worker', :worker_id, :batch, :at, :kind, :queue, :task, :outcome,
    :jobs, :firsts, :seconds, :waited, :d1, :d2, :d3, :d4, :d5, :d6, :d7, :d8, :d9, :d10, :d11, :w1,
    :w2, :w3, :w4, :w5, :w6, :w7, :w8, :w9, :w10, :w11)
ON CONFLICT DO NOTHING
-- name: old
SELECT rowid FROM outlast_minutes INDEXED BY outlast_minutes_at
WHERE level = ? AND at < ? ORDER BY at LIMIT ?
-- name: add
INSERT INTO outlast_minutes AS m (
    level, worker_id, batch, at, kind, queue, task, outcome,
    jobs, firsts, seconds, waited, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, w1, w2, w3, w4, w5,
    w6, w7, w8, w9, w10, w11)
SELECT :level, 0, CASE WHEN :width > 0 THEN g.at - g.at % :width ELSE 0 END AS part,
       CASE WHEN :width > 0 THEN g.at - g.at % :width ELSE max(g.at) END, g.kind, g.queue, g.task, g.outcome,
       min(100000000000000, sum(g.jobs)), min(100000000000000, sum(g.firsts)),
       min(100000000000000, sum(g.seconds)), min(100000000000000, sum(g.waited)),
       min(100000000000000, sum(g.d1)), min(100000000000000, sum(g.d2)),
       min(100000000000000, sum(g.d3)), min(100000000000000, sum(g.d4)),
       min(100000000000000, sum(g.d5)), min(100000000000000, sum(g.d6)),
       min(100000000000000, sum(g.d7)), min(100000000000000, sum(g.d8)),
       min(100000000000000, sum(g.d9)), min(100000000000000, sum(g.d10)),
       min(100000000000000, sum(g.d11)), min(100000000000000, sum(g.w1)),
       min(100000000000000, sum(g.w2)), min(100000000000000, sum(g.w3)),
       min(100000000000000, sum(g.w4)), min(100000000000000, sum(g.w5)),
       min(100000000000000, sum(g.w6)), min(100000000000000, sum(g.w7)),
       min(100000000000000, sum(g.w8)), min(100000000000000, sum(g.w9)),
       min(100000000000000, sum(g.w10)), min(100000000000000, sum(g.w11))
FROM outlast_minutes AS g WHERE g.rowid IN (SELECT e.value FROM json_each(:ids) AS e)
GROUP BY part, g.kind, g.queue, g.task, g.outcome
ON CONFLICT (level, worker_id, batch, kind, queue, task, outcome) DO UPDATE SET
    at = max(m.at, excluded.at),
    jobs = min(100000000000000, m.jobs + excluded.jobs),
    firsts = min(100000000000000, m.firsts + excluded.firsts),
    seconds = min(100000000000000, m.seconds + excluded.seconds),
    waited = min(100000000000000, m.waited + excluded.waited),
    d1 = min(100000000000000, m.d1 + excluded.d1), d2 = min(100000000000000, m.d2 + excluded.d2),
    d3 = min(100000000000000, m.d3 + excluded.d3), d4 = min(100000000000000, m.d4 + excluded.d4),
    d5 = min(100000000000000, m.d5 + excluded.d5), d6 = min(100000000000000, m.d6 + excluded.d6),
    d7 = min(100000000000000, m.d7 + excluded.d7), d8 = min(100000000000000, m.d8 + excluded.d8),
    d9 = min(100000000000000, m.d9 + excluded.d9), d10 = min(100000000000000, m.d10 + excluded.d10),
    d11 = min(100000000000000, m.d11 + excluded.d11), w1 = min(100000000000000, m.w1 + excluded.w1),
    w2 = min(100000000000000, m.w2 + excluded.w2), w3 = min(100000000000000, m.w3 + excluded.w3),
    w4 = min(100000000000000, m.w4 + excluded.w4), w5 = min(100000000000000, m.w5 + excluded.w5),
    w6 = min(100000000000000, m.w6 + excluded.w6), w7 = min(100000000000000, m.w7 + excluded.w7),
    w8 = min(100000000000000, m.w8 + excluded.w8), w9 = min(100000000000000, m.w9 + excluded.w9),
    w10 = min(100000000000000, m.w10 + excluded.w10), w11 = min(100000000000000, m.w11 + excluded.w11)
-- name: forget
DELETE FROM outlast_minutes WHERE rowid IN (SELECT e.value FROM json_each(:ids) AS e)
-- name: totals
SELECT m.kind, m.queue, m.task, m.outcome,
       sum(m.jobs) AS jobs, sum(m.firsts) AS firsts, sum(m.seconds) AS seconds, sum(m.waited) AS waited, sum(m.d1) AS d1, sum(m.d2) AS d2, sum(m.d3) AS d3,
       sum(m.d4) AS d4, sum(m.d5) AS d5, sum(m.d6) AS d6, sum(m.d7) AS d7, sum(m.d8) AS d8, sum(m.d9) AS d9, sum(m.d10) AS d10, sum(m.d11) AS d11,
       sum(m.w1) AS w1, sum(m.w2) AS w2, sum(m.w3) AS w3, sum(m.w4) AS w4, sum(m.w5) AS w5, sum(m.w6) AS w6, sum(m.w7) AS w7, sum(m.w8) AS w8,
       sum(m.w9) AS w9, sum(m.w10) AS w10, sum(m.w11) AS w11
FROM (SELECT * FROM (
          SELECT * FROM outlast_minutes WHERE level = 'total'
          ORDER BY level, worker_id, batch, kind, queue, task, outcome LIMIT :most)
      UNION ALL
      SELECT * FROM (
          SELECT * FROM outlast_minutes INDEXED BY outlast_minutes_at WHERE level = 'worker'
          ORDER BY at DESC LIMIT :most)) AS m
GROUP BY m.kind, m.queue, m.task, m.outcome
ORDER BY m.kind, m.queue, m.task, m.outcome
-- name: minutes
-- At most :most rows, the newest, are read: three parts of the index, newest first. Each row brings how many rows
-- were read, and the time of the oldest of them. :by_queue, :by_task: whether to tell queues and tasks apart or to
-- add them up under the empty name. :detail (store/minutes.py): numbers by step only; or also lengths over all steps,
-- in rows of their own; or everything. A part that is not asked for reads nothing.
WITH seen (number, at) AS MATERIALIZED (
    SELECT * FROM (
        SELECT * FROM (
            SELECT rowid, at FROM outlast_minutes INDEXED BY outlast_minutes_at
            WHERE level = 'worker' AND at BETWEEN :now - :seconds AND :now ORDER BY at DESC LIMIT :most)
        UNION ALL
        SELECT * FROM (
            SELECT rowid, at FROM outlast_minutes INDEXED BY outlast_minutes_at
            WHERE level = 'minute' AND at BETWEEN :now - :seconds AND :now ORDER BY at DESC LIMIT :most)
        UNION ALL
        SELECT * FROM (
            SELECT rowid, at FROM outlast_minutes INDEXED BY outlast_minutes_at
            WHERE level = 'hour' AND at BETWEEN :now - :seconds AND :now ORDER BY at DESC LIMIT :most))
    ORDER BY at DESC LIMIT :most
)
SELECT :now AS now, (SELECT count(*) FROM seen) AS read, (SELECT min(at) FROM seen) AS oldest, c.queue, c.task, c.outcome,
       json_group_array(c.step) AS steps, json_group_array(c.jobs) AS jobs, '[]' AS seconds, '[]' AS waited, '[]' AS ran,
       '[]' AS due, '[]' AS durations, '[]' AS waits
FROM (
    SELECT m.at - m.at % :step AS step,
           iif(:by_queue, m.queue, '') AS queue, iif(:by_task, m.task, '') AS task, m.outcome AS outcome, sum(m.jobs) AS jobs
    FROM seen CROSS JOIN outlast_minutes AS m ON m.rowid = seen.number
    WHERE :detail <> 'all' AND m.kind = 'attempt'
      AND (:queue IS NULL OR m.queue = :queue) AND (:task IS NULL OR m.task = :task)
    GROUP BY 1, 2, 3, 4) AS c
GROUP BY c.queue, c.task, c.outcome
UNION ALL
SELECT :now, (SELECT count(*) FROM seen), (SELECT min(at) FROM seen), c.queue, c.task, c.outcome,
       '[]', '[]', '[]', '[]', '[]', '[]',
       json_array(sum(c.d1), sum(c.d2), sum(c.d3), sum(c.d4), sum(c.d5), sum(c.d6),
                  sum(c.d7), sum(c.d8), sum(c.d9), sum(c.d10), sum(c.d11)),
       json_array(sum(c.w1), sum(c.w2), sum(c.w3), sum(c.w4), sum(c.w5), sum(c.w6),
                  sum(c.w7), sum(c.w8), sum(c.w9), sum(c.w10), sum(c.w11))
FROM (
    SELECT iif(:by_queue, m.queue, '') AS queue, iif(:by_task, m.task, '') AS task, m.outcome AS outcome,
           m.d1, m.d2, m.d3, m.d4, m.d5, m.d6, m.d7, m.d8, m.d9, m.d10, m.d11,
           m.w1, m.w2, m.w3, m.w4, m.w5, m.w6, m.w7, m.w8, m.w9, m.w10, m.w11
    FROM seen CROSS JOIN outlast_minutes AS m ON m.rowid = seen.number
    WHERE :detail = 'lengths' AND m.kind = 'attempt'
      AND (:queue IS NULL OR m.queue = :queue) AND (:task IS NULL OR m.task = :task)
) AS c
GROUP BY c.queue, c.task, c.outcome
UNION ALL
SELECT :now, (SELECT count(*) FROM seen), (SELECT min(at) FROM seen), c.queue, c.task, c.outcome,
       json_group_array(c.step), json_group_array(c.jobs),
       json_group_array(c.seconds), json_group_array(c.waited),
       json_group_array(c.d1 + c.d2 + c.d3 + c.d4 + c.d5 + c.d6 + c.d7 + c.d8 + c.d9 + c.d10 + c.d11),
       json_group_array(c.w1 + c.w2 + c.w3 + c.w4 + c.w5 + c.w6 + c.w7 + c.w8 + c.w9 + c.w10 + c.w11),
       json_array(sum(c.d1), sum(c.d2), sum(c.d3), sum(c.d4), sum(c.d5), sum(c.d6),
                  sum(c.d7), sum(c.d8), sum(c.d9), sum(c.d10), sum(c.d11)),
       json_array(sum(c.w1), sum(c.w2), sum(c.w3), sum(c.w4), sum(c.w5), sum(c.w6),
                  sum(c.w7), sum(c.w8), sum(c.w9), sum(c.w10), sum(c.w11))
FROM (
    SELECT m.at - m.at % :step AS step,
           iif(:by_queue, m.queue, '') AS queue, iif(:by_task, m.task, '') AS task, m.outcome AS outcome,
           sum(m.jobs) AS jobs, sum(m.seconds) AS seconds, sum(m.waited) AS waited,
           sum(m.d1) AS d1, sum(m.d2) AS d2, sum(m.d3) AS d3, sum(m.d4) AS d4, sum(m.d5) AS d5, sum(m.d6) AS d6,
           sum(m.d7) AS d7, sum(m.d8) AS d8, sum(m.d9) AS d9, sum(m.d10) AS d10, sum(m.d11) AS d11,
           sum(m.w1) AS w1, sum(m.w2) AS w2, sum(m.w3) AS w3, sum(m.w4) AS w4, sum(m.w5) AS w5, sum(m.w6) AS w6,
           sum(m.w7) AS w7, sum(m.w8) AS w8, sum(m.w9) AS w9, sum(m.w10) AS w10, sum(m.w11) AS w11
    FROM seen CROSS JOIN outlast_minutes AS m ON m.rowid = seen.number
    WHERE :detail = 'all' AND m.kind = 'attempt'
      AND (:queue IS NULL OR m.queue = :queue) AND (:task IS NULL OR m.task = :task)
    GROUP BY 1, 2, 3, 4) AS c
GROUP BY c.queue, c.task, c.outcome
UNION ALL
SELECT :now, (SELECT count(*) FROM seen), (SELECT min(at) FROM seen), NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
