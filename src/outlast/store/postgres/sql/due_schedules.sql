-- A page of the schedules that are due, behind the instant and name where the last one has ended, and when the
-- first of the others is due: always one row, and all by the index of next_tick. Reads only. What
-- changes after this is found by the firing, which matches revision and next_tick.
SELECT t.now,
       (SELECT n.next_tick FROM outlast_schedules n
        WHERE NOT n.paused AND n.declared AND n.next_tick IS NOT NULL AND n.next_tick > t.now
        ORDER BY n.next_tick LIMIT 1) AS first_after,
       s.*
FROM (SELECT extract(epoch FROM c.now)::float8 AS now,
             extract(epoch FROM outlast_head_v1('outlast_schedules_next'::regclass, c.now))::float8 AS floor
      FROM (SELECT clock_timestamp() AS now OFFSET 0) c) t
LEFT JOIN LATERAL (
    SELECT d.name, d.revision, d.next_tick, d.since, d.owed, d.call, d.spec, d.overlap, d.catch_up, d.grace,
           d.version, d.declared_at
    FROM outlast_schedules d
    WHERE NOT d.paused AND d.declared AND d.next_tick IS NOT NULL AND d.next_tick <= t.now
      AND d.next_tick >= t.floor AND (d.next_tick, d.name) > ($2::float8, $3::text COLLATE "C")
    ORDER BY d.next_tick, d.name LIMIT $1) s ON true
ORDER BY s.next_tick, s.name
