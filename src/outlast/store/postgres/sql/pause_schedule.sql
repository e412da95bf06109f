-- Pause a schedule, or resume it ($2 false) at the first tick after now, never before what is accounted for; the
-- ticks that passed while it was paused are owed, and counted by the next worker that looks. A
-- firing under way holds the row, and this waits for it; one that comes later finds the row
-- paused, or with another revision (next_tick alone may be as it was: where the clock stands behind, it is
-- the tick that was fired last). One that is resumed and was not paused goes on as it did.
UPDATE outlast_schedules s
SET paused = $2::boolean,
    revision = CASE WHEN s.paused AND NOT $2::boolean THEN nextval('outlast_position_seq') ELSE s.revision END,
    owed = CASE WHEN s.paused AND NOT $2::boolean
                THEN outlast_owe_ticks_v1(s.owed, s.since, greatest(s.since, t.now), s.spec, $3)
                ELSE s.owed END,
    since = CASE WHEN s.paused AND NOT $2::boolean THEN greatest(s.since, t.now) ELSE s.since END,
    next_tick = CASE WHEN s.paused AND NOT $2::boolean THEN greatest(s.since, t.now) ELSE s.next_tick END
FROM (SELECT extract(epoch FROM statement_timestamp())::float8 AS now) t
WHERE s.name = $1 AND s.origin <> 'deleted'
RETURNING 1
