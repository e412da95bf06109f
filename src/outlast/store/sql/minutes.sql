-- Counters of workers: statements that all stores share (statements.py). Reads only.

-- name: totals
-- Read all that workers have counted since the store was made: the totals, and what was not added to them yet, :most
-- rows of each at most. One snapshot, so that a row that moves from one to the other counts once.
SELECT m.kind, m.queue, m.task, m.outcome, sum(m.jobs)::bigint AS jobs, sum(m.firsts)::bigint AS firsts,
       sum(m.seconds)::float8 AS seconds, sum(m.waited)::float8 AS waited, sum(m.d1)::bigint AS d1,
       sum(m.d2)::bigint AS d2, sum(m.d3)::bigint AS d3, sum(m.d4)::bigint AS d4, sum(m.d5)::bigint AS d5,
       sum(m.d6)::bigint AS d6, sum(m.d7)::bigint AS d7, sum(m.d8)::bigint AS d8, sum(m.d9)::bigint AS d9,
       sum(m.d10)::bigint AS d10, sum(m.d11)::bigint AS d11, sum(m.w1)::bigint AS w1, sum(m.w2)::bigint AS w2,
       sum(m.w3)::bigint AS w3, sum(m.w4)::bigint AS w4, sum(m.w5)::bigint AS w5, sum(m.w6)::bigint AS w6,
       sum(m.w7)::bigint AS w7, sum(m.w8)::bigint AS w8, sum(m.w9)::bigint AS w9, sum(m.w10)::bigint AS w10,
       sum(m.w11)::bigint AS w11
FROM (SELECT * FROM (
          SELECT * FROM outlast_minutes WHERE level = 'total'
          ORDER BY level, worker_id, batch, kind, queue, task, outcome LIMIT :most) t
      UNION ALL
      SELECT * FROM (
          SELECT * FROM outlast_minutes /*! INDEXED BY outlast_minutes_at */ WHERE level = 'worker'
          ORDER BY level, at DESC LIMIT :most) w) m
GROUP BY m.kind, m.queue, m.task, m.outcome
ORDER BY m.kind, m.queue, m.task, m.outcome
