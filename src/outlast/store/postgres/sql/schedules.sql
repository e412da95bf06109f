-- Schedules: put, paused, due, fired and read. functions/NAME.sql argues why a call of a function is right against a
-- concurrent claim, reap and late worker.

-- name: put
-- Put schedules in the order of their names, so that two callers that put the same ones wait in the same order.
SELECT p.name, outlast_put_schedule_v1(
    p.name, p.call, p.spec, p.overlap, p.catch_up, p.grace, $8::text, p.version, $9::float8, $10::float8,
    $11::float8, $12::integer, $13::integer) AS answer
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
                           $6::text::float8[], $7::text[])
          AS u (name, call, spec, overlap, catch_up, grace, version)
      ORDER BY u.name COLLATE "C") p

-- name: lock
-- Lock a schedule, and read the columns by which a pause is judged (store/acts.py).
SELECT s.paused, s.since, s.owed, s.spec, date_part('epoch', clock_timestamp()) AS now
FROM outlast_schedules s WHERE s.name = :name AND s.origin <> 'deleted' FOR NO KEY UPDATE

-- name: due
-- Read a page of the due schedules, after the instant and name with which the last page ended, and when the first of
-- the others is due, if within a minute. Always returns a row. The firing detects a change after this read: it matches
-- revision and next_tick.
SELECT t.now,
       (SELECT n.next_tick FROM outlast_schedules n
        WHERE NOT n.paused AND n.declared AND n.next_tick IS NOT NULL
          AND n.next_tick > t.now AND n.next_tick <= t.now + 60
        ORDER BY n.next_tick LIMIT 1) AS first_after,
       s.*
FROM (SELECT c.now, outlast_read_from_v1('outlast_schedules_next'::regclass, c.now) AS floor
      FROM (SELECT date_part('epoch', clock_timestamp()) AS now OFFSET 0) c) t
LEFT JOIN LATERAL (
    SELECT {d.due_schedule}
    FROM outlast_schedules d
    WHERE NOT d.paused AND d.declared AND d.next_tick IS NOT NULL AND d.next_tick <= t.now
      AND d.next_tick >= t.floor AND (d.next_tick, d.name) > ($2::float8, $3::text COLLATE "C")
    ORDER BY d.next_tick, d.name LIMIT $1) s ON true
ORDER BY s.next_tick, s.name

-- name: fire
-- Lock the schedules that are unchanged since a worker read them. This is the first of three statements in one
-- transaction (`keyed` of enqueue.sql stores the jobs of the ticks, `fired` moves the schedules on). Returns the places
-- of the schedules that were locked.
--
-- Why a tick has one job, against
--   * another worker that fires it: the row is locked, and a lock that does not wait skips a held row. A worker that
--     comes after the commit re-checks next_tick and revision on the newest version, and locks nothing. If this
--     transaction rolls back, its jobs are rolled back too, and the tick is still due.
--   * an edit, a pause, a resume, a delete: each changes what is matched here, or waits for the lock.
--   * a worker that was found gone meanwhile: it may fire like any other; there is one winner all the same.
--   * a user's transaction that holds one of the rows, or never ends: the other schedules fire. It may also hold the
--     key of a job: the next statements wait for a short time only, and the caller tries the others.
SELECT f.place, set_config('lock_timeout', '20ms', true)
FROM unnest($1::text[], $2::text::float8[], $3::text::bigint[])
     WITH ORDINALITY AS f (name, next_tick, revision, place)
JOIN outlast_schedules s
  ON s.name = f.name AND s.next_tick = f.next_tick AND s.revision = f.revision AND NOT s.paused
ORDER BY s.name
FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: fired
-- Move on the schedules whose rows `fire` has locked in this transaction, so nothing else changes them. since only
-- rises, so that no step of the clock brings back a tick that is accounted for.
UPDATE outlast_schedules s
SET since = greatest(s.since, f.since), next_tick = f.later, owed = f.owed, last_tick = coalesce(f.last_tick, s.last_tick),
    last_job = coalesce(f.last_job, s.last_job), fired = s.fired + f.fired,
    skipped = s.skipped + f.skipped, missed = s.missed + f.missed,
    last_skip = coalesce(f.last_skip, s.last_skip),
    last_skip_job = CASE WHEN f.last_skip IS NULL THEN s.last_skip_job ELSE f.in_the_way END
FROM unnest($1::text[], $2::text::float8[], $3::text::float8[], $4::text::float8[], $5::text::bigint[],
            $6::text::bigint[], $7::text::bigint[], $8::text::bigint[], $9::text::float8[], $10::text::bigint[], $11::text[])
     AS f (name, since, later, last_tick, last_job, fired, skipped, missed, last_skip, in_the_way, owed)
WHERE s.name = f.name

-- name: undeclared
-- Take these schedules out of the index by which workers find due ones. A worker that declares one at this moment holds
-- the row, which is skipped, or has just renewed it: the condition is re-checked on that version.
UPDATE outlast_schedules s SET declared = false
FROM (SELECT d.name FROM outlast_schedules d
      WHERE d.name = ANY ($1::text[]) AND d.declared
        AND abs(d.declared_at - date_part('epoch', statement_timestamp())) > $2::float8
      FOR NO KEY UPDATE SKIP LOCKED) l
WHERE s.name = l.name
RETURNING 1
