-- Pause a schedule, or resume it ($2 false) at the first tick after now, never before what is accounted for. A
-- firing under way holds the row, and this waits for it; one that comes later finds the row
-- paused, or with another next_tick. One that is resumed and was not paused goes on as it did.
UPDATE outlast_schedules s
SET paused = $2::boolean,
    since = CASE WHEN s.paused AND NOT $2::boolean THEN greatest(s.since, t.now) ELSE s.since END,
    next_tick = CASE WHEN s.paused AND NOT $2::boolean THEN greatest(s.since, t.now) ELSE s.next_tick END
FROM (SELECT extract(epoch FROM statement_timestamp())::float8 AS now) t
WHERE s.name = $1
RETURNING 1
