-- Move schedules on whose rows are locked by fire.sql in this transaction: nothing else changes them. since
-- only rises, so that no step of the clock brings a tick back that is accounted for.
UPDATE outlast_schedules s
SET since = greatest(s.since, f.since), next_tick = f.later, owed = f.owed, last_tick = coalesce(f.last_tick, s.last_tick),
    last_job = coalesce(f.last_job, s.last_job), fired = s.fired + f.fired,
    skipped = s.skipped + f.skipped, missed = s.missed + f.missed,
    last_skip = coalesce(f.last_skip, s.last_skip),
    last_skip_job = CASE WHEN f.last_skip IS NULL THEN s.last_skip_job ELSE f.in_the_way END
FROM unnest($1::text[], $2::float8[], $3::float8[], $4::float8[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::float8[], $10::bigint[], $11::text[])
     AS f (name, since, later, last_tick, last_job, fired, skipped, missed, last_skip, in_the_way, owed)
WHERE s.name = f.name
