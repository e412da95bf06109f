-- Delete jobs, events and rows of workers, schedules and limits that ended long ago, oldest first, in bounded batches.
--
-- Jobs are chosen and locked first; outlast_forget_v1 then deletes them with their attempts, labels and logs. Its
-- statements see what was committed while the locks were taken, such as the attempt of an end just before.

-- name: jobs
-- Delete jobs with their attempts, oldest first, at most $1 in all: jobs that were completed or cancelled $2 seconds
-- ago, jobs whose own retention (keep) is over, and jobs that died $3 seconds ago (NULL: none; dead jobs are evidence,
-- see discard). Locked rows are skipped. If a job was requeued meanwhile, the lock's re-check finds no end and another
-- state, and the job stays. (The first ORDER BY names ended_at + keep, which is NULL there, since the index begins with
-- it.)
--
-- A job stays, with its result, while a job that waited for it has not ended (outlast_is_over_v1).
--
-- $4 to $6: the end or time from which each of the three is searched, in seconds since 1970: where the last batch
-- stopped, or -infinity. Deleted rows stay in the index until vacuum removes them, and a search from the oldest walks
-- over all of them. These bounds are only hints: the next search from the oldest finds the rows below them. Many jobs
-- have the same end, and a batch may stop among them; hence the millisecond.
WITH old AS MATERIALIZED (
    SELECT id, ended_at AS at FROM outlast_jobs
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep IS NULL
      AND ended_at < date_part('epoch', statement_timestamp()) - least($2::float8, 1e9)
      AND ended_at >= $4::float8 AND (NOT awaited OR outlast_is_over_v1(id))
    ORDER BY ended_at + keep, ended_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), kept AS MATERIALIZED (
    SELECT id, ended_at + keep AS at FROM outlast_jobs
    WHERE ended_at IS NOT NULL AND state <> 'dead' AND ended_at + keep <= date_part('epoch', statement_timestamp())
      AND ended_at + keep >= $5::float8 AND (NOT awaited OR outlast_is_over_v1(id))
    ORDER BY ended_at + keep LIMIT $1 - (SELECT count(*) FROM old) FOR UPDATE SKIP LOCKED
), dead AS MATERIALIZED (
    SELECT id, ended_at AS at FROM outlast_jobs
    WHERE $3::float8 IS NOT NULL AND state = 'dead'
      AND ended_at < date_part('epoch', statement_timestamp()) - least($3, 1e9)
      AND ended_at >= $6::float8 AND (NOT awaited OR outlast_is_over_v1(id))
    ORDER BY ended_at
    LIMIT $1 - (SELECT count(*) FROM old) - (SELECT count(*) FROM kept) FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (SELECT id FROM old UNION ALL SELECT id FROM kept UNION ALL SELECT id FROM dead)
SELECT (SELECT count(*) FROM found) AS gone,
       coalesce((SELECT max(at) - 0.001 FROM old), $4) AS old,
       coalesce((SELECT max(at) - 0.001 FROM kept), $5) AS kept,
       coalesce((SELECT max(at) - 0.001 FROM dead), $6) AS dead,
       outlast_forget_v1(ARRAY(SELECT id FROM found)) AS done

-- name: events
-- Delete events that were sent $1 seconds ago, at most $2, oldest first. If a job has waited for an event, the event
-- stays while that job is unfinished: the job may have been woken, and reads the event only when it runs. A job cannot
-- begin to wait for such an old event: it would have found it.
DELETE FROM outlast_events e USING (
    SELECT o.name FROM outlast_events o
    WHERE o.at < date_part('epoch', statement_timestamp()) - $1::float8
      AND NOT EXISTS (SELECT FROM outlast_waits w JOIN outlast_jobs j ON j.id = w.job_id
                      WHERE w.event = o.name AND j.ended_at IS NULL)
    ORDER BY o.at LIMIT $2::integer FOR UPDATE SKIP LOCKED) p
WHERE e.name = p.name RETURNING e.name

-- name: workers
-- Delete, at most $2 rows of each kind:
--   * workers that have been gone for $1 seconds and hold no running job. A gone worker never claims again (an exchange
--     wants an active row), so it gets no job while this statement checks.
--   * schedules that no code has declared for $3 seconds (one that a person has paused stays), or that were deleted
--     that long ago. A schedule that is declared or put at this moment is locked, and skipped.
--   * records of actions of people that are older than $4 seconds, except actions under way.
--   * windows of keys that are over; an enqueue that takes one again holds its row locked.
WITH old AS MATERIALIZED (
    SELECT w.id FROM outlast_workers w
    WHERE w.status IN ('stopped', 'lost')
      AND w.stopped_at < date_part('epoch', statement_timestamp()) - least($1::float8, 1e9)
      AND NOT EXISTS (SELECT FROM outlast_jobs j WHERE j.worker_id = w.id)
    ORDER BY w.stopped_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM outlast_workers w USING old o WHERE w.id = o.id RETURNING w.id
), undeclared AS (
    DELETE FROM outlast_schedules s USING (
        SELECT d.name FROM outlast_schedules d
        WHERE d.declared_at < date_part('epoch', statement_timestamp()) - $3::float8
          AND (NOT d.paused OR d.origin = 'deleted')
        ORDER BY d.declared_at LIMIT $2::integer FOR UPDATE SKIP LOCKED) u
    WHERE s.name = u.name RETURNING s.name
), forgotten AS (
    DELETE FROM outlast_actions a USING (
        SELECT r.id FROM outlast_actions r
        WHERE r.state <> 'running' AND r.at < date_part('epoch', statement_timestamp()) - $4::float8
        ORDER BY r.id LIMIT $2::integer FOR UPDATE SKIP LOCKED) f
    WHERE a.id = f.id RETURNING a.id
), over AS (
    DELETE FROM outlast_windows w USING (
        SELECT o.key, o.task FROM outlast_windows o WHERE o.until < date_part('epoch', statement_timestamp())
        ORDER BY o.until LIMIT $2::integer FOR UPDATE SKIP LOCKED) o
    WHERE w.key = o.key AND w.task = o.task RETURNING w.key)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM undeclared) + (SELECT count(*) FROM forgotten)
       + (SELECT count(*) FROM over)

-- name: lanes
SELECT outlast_thin_lanes_v1()

-- name: unserved
-- Close, as idle, streams that nothing has touched for $1 seconds and in which no job waits, among the $2 from $3 on in
-- the order of ids: a claim would do so, but no worker serves their task any more. With the keeper lock, as in
-- "streams": the arrival of a job that is not seen here leaves a notice, which opens the stream again.
UPDATE outlast_streams s SET idle = true, blocked = NULL
WHERE s.id = ANY (ARRAY((SELECT o.id FROM outlast_streams o WHERE o.id >= $3::bigint ORDER BY o.id LIMIT $2::integer)
                        UNION ALL (SELECT o.id FROM outlast_streams o WHERE o.id < $3 ORDER BY o.id LIMIT $2)
                        LIMIT $2))
  AND NOT s.idle AND s.blocked IS DISTINCT FROM -2
  AND s.touched_at < date_part('epoch', statement_timestamp()) - $1::float8
  AND NOT EXISTS (SELECT FROM outlast_jobs j WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                                               AND j.position IS NOT NULL)

-- name: streams
-- Delete at most $2 streams that have been idle for $1 seconds and have no running attempt and no notice of an end.
-- Delete permits that no attempt has held for that long, that block no stream and have no notice: the permits of these
-- streams, and the $2 from $3 on in the order of ids, since a permit may come to rest later than its last stream. The
-- transaction has the keeper lock, so meanwhile no job starts, no notice is folded, and no permit is held or set. One
-- snapshot shows an attempt or the notice of its end. When a job arrives, or its stream lacks a permit, the rows are
-- made again.
WITH resting AS MATERIALIZED (
    SELECT s.id, s.permits FROM outlast_streams s
    WHERE s.idle AND s.touched_at < date_part('epoch', statement_timestamp()) - $1::float8
      AND s.id NOT IN (SELECT j.stream FROM outlast_jobs j WHERE j.worker_id IS NOT NULL AND j.stream IS NOT NULL)
      AND s.id NOT IN (SELECT n.stream FROM outlast_notices n WHERE n.stream IS NOT NULL)
    ORDER BY s.touched_at LIMIT $2::integer
), rested AS (
    DELETE FROM outlast_streams s USING resting r WHERE s.id = r.id RETURNING s.id
), unused AS (
    DELETE FROM outlast_permits p
    WHERE p.id = ANY (ARRAY(SELECT DISTINCT u FROM resting r, unnest(r.permits) AS u)
                      || ARRAY((SELECT o.id FROM outlast_permits o WHERE o.id >= $3::bigint ORDER BY o.id LIMIT $2)
                               UNION ALL (SELECT o.id FROM outlast_permits o WHERE o.id < $3 ORDER BY o.id LIMIT $2)
                               LIMIT $2))
      AND p.used = 0 AND num_nonnulls(p.own_running, p.opens_at) = 0
      AND greatest(p.touched_at, p.tat, p.held_until) < date_part('epoch', statement_timestamp()) - $1
      AND NOT EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id)
      AND p.id NOT IN (SELECT n.permit FROM outlast_notices n WHERE n.permit IS NOT NULL) RETURNING p.id)
SELECT (SELECT count(*) FROM rested) + (SELECT count(*) FROM unused)
