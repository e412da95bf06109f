-- Take those schedules that stand where a worker has seen them: first of three statements in one
-- transaction (enqueue_keyed.sql stores the jobs of the ticks, fired.sql moves the schedules on). Returns the
-- places of those that are taken.
--
-- Why a tick has one job, against
--   * another worker that fires it: the row is locked, and a lock that does not wait passes over one that is
--     held. Who comes after the commit re-checks next_tick and revision on the newest version, and
--     takes nothing. Should this transaction roll back, its jobs go with it, and the tick is due still.
--   * an edit, a pause, a resume, a delete: each changes what is matched here, or waits for the lock.
--   * a worker that was found gone meanwhile: it may fire, as any; there is one winner all the same.
--   * a user's transaction that holds one of the rows, or never ends: the others are fired. It may also hold
--     the key of a job: the next statements wait for a short time only, and the caller tries the others.
SELECT f.place, set_config('lock_timeout', '20ms', true)
FROM unnest($1::text[], $2::float8[], $3::bigint[])
     WITH ORDINALITY AS f (name, next_tick, revision, place)
JOIN outlast_schedules s
  ON s.name = f.name AND s.next_tick = f.next_tick AND s.revision = f.revision AND NOT s.paused
ORDER BY s.name
FOR NO KEY UPDATE OF s SKIP LOCKED
