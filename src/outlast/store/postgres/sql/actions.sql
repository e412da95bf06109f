-- Acts of people on jobs, the records of these acts, and bulk actions step by step. store/acts.py says what each act
-- means, runs these statements in one transaction, and argues why that is right against a concurrent claim, reap and
-- late worker.

-- name: by_index
-- For the rest of this transaction, read by index even if the statistics are out of date, also in functions.
SET LOCAL jit = off;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off

-- name: lock_free
-- Lock the jobs among these that no other session has locked, in the order of their ids. Each job is read by its
-- primary key: a join was seen to read the whole table when its statistics were old.
SELECT l.id FROM (SELECT DISTINCT u AS id FROM unnest(:ids::text::bigint[]) AS u ORDER BY u) s
CROSS JOIN LATERAL (SELECT j.id FROM outlast_jobs j WHERE j.id = s.id FOR NO KEY UPDATE SKIP LOCKED) l

-- name: lock
-- Lock jobs in the order of their ids, and read each once it is locked: this statement and later ones see what was
-- committed while this waited for a row.
SELECT l.* FROM (SELECT DISTINCT u AS id FROM unnest(:ids::text::bigint[]) AS u ORDER BY u) s
CROSS JOIN LATERAL (
    SELECT j.id, coalesce(j.token, 0) AS token, j.state, j.key, j.awaited, j.keep <= 0 AND NOT j.awaited AS unkept
    FROM outlast_jobs j WHERE j.id = s.id FOR NO KEY UPDATE) l

-- name: cancel
-- End queued and blocked jobs that are locked, and leave a request on running ones.
WITH asked AS (
    UPDATE outlast_jobs j
    SET cancel_requested = true, position = NULL,
        state = CASE WHEN j.state = 'running' THEN j.state ELSE 'cancelled' END,
        ended_at = CASE WHEN j.state <> 'running' THEN date_part('epoch', clock_timestamp()) END
    WHERE j.id = ANY (:ids::text::bigint[]) RETURNING j.id, j.state, j.worker_id)
SELECT CASE WHEN state = 'cancelled' THEN outlast_note_v1(ARRAY[id], p_ran => false, p_had_ended => false)::text
            WHEN :notify::boolean THEN pg_notify(outlast_channel_v1(), 'cancel:' || worker_id::text)::text END
FROM asked

-- name: requeue
-- Queue dead and cancelled jobs that are locked, each at its position, unless an unfinished job has its key. If another
-- session has enqueued that key and not committed, this waits at the unique index, and fails if that commits.
WITH revived AS (
    UPDATE outlast_jobs j
    SET state = 'queued', position = n.position,
        run_at = date_part('epoch', clock_timestamp()), requeued_at = date_part('epoch', clock_timestamp()),
        failures = 0, losses = 0, solo = 0, incident = NULL, fingerprint = NULL, started_at = NULL, ended_at = NULL,
        expires_at = NULL, cancel_requested = false, progress = NULL,
        checkpoint = CASE WHEN :from_scratch::boolean THEN NULL ELSE j.checkpoint END,
        checkpoint_at = CASE WHEN :from_scratch THEN NULL ELSE j.checkpoint_at END
    FROM unnest(:ids::text::bigint[], :positions::text::bigint[]) AS n (id, position)
    WHERE j.id = n.id AND NOT EXISTS (SELECT FROM outlast_jobs k WHERE k.key = j.key AND k.ended_at IS NULL)
    RETURNING j.id)
SELECT id, outlast_note_v1(ARRAY[id], p_ran => false, p_had_ended => true) FROM revived

-- name: skip
-- Complete dead and blocked jobs that are locked.
WITH skipped AS (
    UPDATE outlast_jobs j
    SET state = 'completed', token = n.token, attempt_count = j.attempt_count + 1, fingerprint = NULL,
        started_at = date_part('epoch', clock_timestamp()), ended_at = date_part('epoch', clock_timestamp())
    FROM unnest(:ids::text::bigint[], :tokens::text::bigint[]) AS n (id, token) WHERE j.id = n.id
    RETURNING j.id)
SELECT id, outlast_note_v1(ARRAY[id], p_ran => false, p_had_ended => false) FROM skipped

-- name: draw
-- Draw numbers of a sequence.
SELECT nextval(('outlast_' || :name::text || '_seq')::regclass) AS number FROM generate_series(1, :count::integer)

-- name: forget
SELECT outlast_forget_v1(:ids::text::bigint[])

-- name: resolve
SELECT to_json(ids) AS ids, more FROM outlast_resolve_v1(:most)

-- name: line_up
SELECT outlast_line_up_v1(:ids::text::bigint[])

-- name: notify
SELECT outlast_notify_v1(:ids::text::bigint[])

-- name: forget_oldest
-- Keep the newest :kept records of an actor, and those under way, so that no actor pushes out the records of others. If
-- two calls delete old records at once, each skips the rows that the other has locked.
DELETE FROM outlast_actions WHERE id IN (
    SELECT a.id FROM outlast_actions a
    WHERE a.actor = :actor AND a.state <> 'running'
      AND a.id <= (SELECT b.id FROM outlast_actions b WHERE b.actor = :actor ORDER BY b.id DESC OFFSET :kept::bigint LIMIT 1)
    ORDER BY a.id LIMIT 1000 FOR UPDATE SKIP LOCKED)

-- name: standing
-- Lock an action before its next step, or before more is counted. Two processes may take the same step at once: the
-- second waits here for the commit of the first, then reads the action's progress (READ COMMITTED re-checks the row).
-- It changes nothing if the action is at another step by then, or was stopped. So no two steps act on the same job, and
-- a step whose process dies is taken again as a whole. The row of the action is always locked before rows of jobs, so
-- two steps of one action never deadlock.
SELECT counts, state, before_id FROM outlast_actions WHERE id = :id FOR UPDATE
