-- All that workers have counted since the store was made: the totals, and what was not added to them yet, $1 rows of
-- each at most. One snapshot, so that what moves from one to the other counts once. Reads only.
SELECT m.kind, m.queue, m.task, m.outcome,
       sum(m.jobs)::bigint, sum(m.firsts)::bigint, sum(m.seconds)::float8, sum(m.waited)::float8,
       sum(m.d1)::bigint, sum(m.d2)::bigint, sum(m.d3)::bigint, sum(m.d4)::bigint, sum(m.d5)::bigint,
       sum(m.d6)::bigint, sum(m.d7)::bigint, sum(m.d8)::bigint, sum(m.d9)::bigint, sum(m.d10)::bigint,
       sum(m.d11)::bigint, sum(m.w1)::bigint, sum(m.w2)::bigint, sum(m.w3)::bigint, sum(m.w4)::bigint,
       sum(m.w5)::bigint, sum(m.w6)::bigint, sum(m.w7)::bigint, sum(m.w8)::bigint, sum(m.w9)::bigint,
       sum(m.w10)::bigint, sum(m.w11)::bigint
FROM ((SELECT * FROM outlast_minutes WHERE level = 'total'
       ORDER BY level, worker_id, batch, kind, queue, task, outcome LIMIT $1)
      UNION ALL
      (SELECT * FROM outlast_minutes WHERE level = 'worker' ORDER BY level, at DESC LIMIT $1)) m
GROUP BY m.kind, m.queue, m.task, m.outcome
ORDER BY m.kind, m.queue, m.task, m.outcome
