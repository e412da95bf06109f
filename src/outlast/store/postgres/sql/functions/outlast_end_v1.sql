-- Close attempts as decided: the one guard under which an attempt ends. Returns the closed attempts, each with whether
-- its job can run now, which incident the end clears, the job's new state, `noted`: the caller must leave the notices
-- of the end (outlast_note_v1), and `gone`: the job has ended and is kept for no time, so the caller must then delete
-- its row (outlast_forget_v1), both in the same transaction.
--
-- Rows are joined by `= ANY (ARRAY[h.job_id])`: see outlast_hand_in_v1.
--
-- Why an end is right against
--   * another end, a claim, a late worker: the row is locked by (id, token, running). A lock that does not wait (SKIP
--     LOCKED) and finds that the row has changed re-checks exactly these three on the newest version. A token is never
--     drawn twice, so a match is this attempt.
--   * a cancel request made after the decision: cancel_requested is taken from the locked row, and a return to the
--     queue becomes `cancelled`.
--   * an expiry: it limits only the first start of a job. A job that has begun and returns to the queue no longer
--     expires. A job that has not begun is due again when half of its time is left, so that the delay that this end
--     sets does not make it expire; outlast_expire_v1 ends it once it has expired.
--   * a checkpoint that was accepted while its reply was lost: losses are counted from the locked row. If a checkpoint
--     forgave losses meanwhile, an end by an exhausted budget of losses becomes a return to the queue.
--   * the end of a child that this attempt waits for (blocked): the session that resolves that end locks this job's row
--     before it checks what the job waits for, and holds it to its commit. Either it did so before this end locked the
--     row, and the second statement, with its newer snapshot, sees that no child is left; or it comes after this
--     commit, and finds the job blocked.
--   * evidence written twice: evidence is written from RETURNING of the update, in the same statement.
--   * deadlock: nothing here waits for a job's row, so the order of locks does not matter.
--
-- The notice of a job under limits returns its permits. If the job's code has not begun, the part of a rate that its
-- start has taken is returned too, except what has refilled since: another start may have taken that. If a task has
-- found a limit exhausted, its hold on that limit (throttles) is noted too; a longer hold stays.
--
-- Of a job that runs again and again, the first 10 and the last 20 attempts are kept (as in store.protocol), and every
-- charged attempt for good. Attempt n deletes attempt n - 20 if that was free of charge, and counts it in dropped: one
-- probe by (job_id, number). The older rows were committed before this attempt was claimed, so this snapshot shows
-- them, and only the holder of the job's row touches them. An end that is sent again after 20 more attempts is refused.
--
-- A delay that grows (doubles_to) doubles with each attempt in a row that has ended in this way. `clears` is returned
-- only for ends that were written, because a late end must not clear an incident.
CREATE FUNCTION outlast_end_v1(p_ends text)
RETURNS TABLE (job_id bigint, token bigint, runnable boolean, clears bigint, gone boolean, noted boolean, state text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_free bigint[];
BEGIN
    RETURN QUERY
    WITH locked AS MATERIALIZED (
        SELECT h.job_id, h.token, h.outcome, h.charge, h.failures, h.losses, h.result, h.message,
               h.crash, h.pid, h.fingerprint, coalesce(h.solo, 0) AS solo, h.incident, h.clears,
               CASE WHEN h.state = 'blocked' AND NOT j.cancel_requested THEN 'blocked'
                    WHEN h.state IN ('queued', 'blocked')
                      OR h.state = 'dead' AND h.charge = 'loss' AND least(j.losses, 2147483646) + 1 < h.losses
                    THEN CASE WHEN j.cancel_requested THEN 'cancelled' ELSE 'queued' END
                    ELSE h.state END AS state,
               coalesce(h.began, true) AS began,
               greatest(0, least(coalesce(h.delay, 0), 1e9)) AS delay, h.doubles_to,
               j.stream, CASE WHEN h.throttles IS NOT NULL OR NOT h.began THEN j.needs END AS needs, h.throttles, j.worker_id, j.started_at, j.keep, j.awaited, j.expires_at, greatest(0, j.attempt_count) AS attempt_count, j.progress, j.checkpoint_at
        FROM json_to_recordset(p_ends::json) AS h (
                 job_id bigint, token bigint, state text, outcome text, charge text,
                 failures integer, losses integer, delay double precision, result text,
                 message text, crash text, pid integer, solo smallint, incident bigint,
                 clears bigint, doubles_to double precision, fingerprint text, began boolean,
                 throttles text)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'running'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    ), known AS MATERIALIZED (
        SELECT l.*, o.token AS old, least(coalesce(p.dropped, 0), 2147483646) + (o.token IS NOT NULL)::integer AS dropped,
               CASE WHEN p.outcome = l.outcome THEN greatest(0, least(p.repeats, 2147483646)) + 1 ELSE 1 END AS repeats
        FROM locked l
        LEFT JOIN LATERAL (
            SELECT a.outcome, a.repeats, a.dropped FROM outlast_attempts a
            WHERE a.job_id = l.job_id AND a.number = l.attempt_count - 1 LIMIT 1) p ON true
        LEFT JOIN LATERAL (
            SELECT a.token FROM outlast_attempts a
            WHERE a.job_id = l.job_id AND a.number = l.attempt_count - 20
              AND a.number > 10 AND a.charge = 'none' AND l.state <> 'completed' LIMIT 1) o ON true
    ), decided AS MATERIALIZED (
        SELECT k.*, v_now + least(
            CASE WHEN k.doubles_to > 0 THEN least(k.doubles_to, k.delay * 2 ^ least(k.repeats - 1, 20))
                 ELSE k.delay END,
            CASE WHEN NOT k.began AND k.expires_at IS NOT NULL
                 THEN greatest(0, k.expires_at - v_now) / 2 END) AS due
        FROM known k
    ), ended AS (
        UPDATE outlast_jobs j
        SET state = l.state,
            failures = l.failures,
            losses = least(j.losses, 2147483646) + CASE l.charge WHEN 'loss' THEN 1 ELSE 0 END,
            solo = l.solo,
            incident = l.incident,
            worker_id = NULL,
            hard_deadline = NULL,
            position = CASE WHEN l.state = 'queued' AND l.delay = 0
                            THEN nextval('outlast_position_seq') END,
            run_at = CASE WHEN l.state IN ('queued', 'blocked') THEN l.due ELSE j.run_at END,
            started_at = CASE WHEN l.state IN ('queued', 'blocked') THEN NULL ELSE l.started_at END,
            expires_at = CASE WHEN l.state IN ('queued', 'blocked') AND l.began THEN NULL ELSE l.expires_at END,
            ended_at = CASE WHEN l.state IN ('queued', 'blocked') THEN NULL ELSE v_now END,
            result = CASE WHEN l.state = 'completed' THEN l.result END,
            fingerprint = CASE WHEN l.state = 'dead' THEN l.fingerprint END,
            completed_by = CASE WHEN l.state = 'completed' THEN l.worker_id END
        FROM decided l
        WHERE j.id = ANY (ARRAY[l.job_id])
        RETURNING l.*, l.keep <= 0 AND NOT l.awaited AND l.state IN ('completed', 'cancelled') AS gone
    ), evidence AS (
        INSERT INTO outlast_attempts (
            token, job_id, number, worker_id, worker, host, pid, outcome, charge, message,
            started_at, ended_at, progress, checkpoint_age, crash, repeats, dropped)
        SELECT e.token, e.job_id, e.attempt_count, e.worker_id, w.name, w.host, e.pid, e.outcome,
               e.charge, coalesce(e.message, ''), e.started_at, v_now, e.progress,
               v_now - e.checkpoint_at, e.crash, e.repeats, e.dropped
        FROM ended e LEFT JOIN outlast_workers w ON w.id = e.worker_id
        WHERE e.state <> 'completed' AND e.gone IS NOT TRUE
        ON CONFLICT (token) DO NOTHING
    ), unstarted AS (
        INSERT INTO outlast_notices (permit, spent)
        SELECT w.permit, (v_now - e.started_at) / nullif(l.spacing, 0) - w.cost
        FROM ended e CROSS JOIN LATERAL outlast_needs_v1(e.needs) n
        CROSS JOIN LATERAL unnest(n.permits, n.names, n.costs) AS w (permit, name, cost)
        JOIN outlast_limits l ON l.name = ANY (ARRAY[w.name])
        WHERE NOT e.began AND v_now - e.started_at BETWEEN 0 AND w.cost * l.spacing
    ), throttled AS (
        INSERT INTO outlast_notices (permit, spent, held_until, held_for)
        SELECT w.permit, 0, v_now + e.delay, e.delay
        FROM ended e CROSS JOIN LATERAL outlast_needs_v1(e.needs) n
        CROSS JOIN LATERAL unnest(n.permits, n.names) AS w (permit, name)
        WHERE e.throttles IS NOT NULL AND w.name = e.throttles
    ), thinned AS (
        DELETE FROM outlast_attempts a USING ended e WHERE a.token = ANY (ARRAY[e.old])
    )
    SELECT e.job_id, e.token, e.state = 'queued' AND e.delay = 0, e.clears, e.gone, e.stream IS NOT NULL OR e.awaited, e.state
    FROM ended e;

    -- attempts that wait for an event: the job is queued for the end of the wait (outlast_wake_v1). The row of the
    -- attempt tells this end from that of a reaper, which leaves the same token.
    IF strpos(p_ends, '"event":"') > 0 THEN
        WITH waits AS (
            INSERT INTO outlast_waits (job_id, token, event)
            SELECT j.id, j.token, h.event
            FROM json_to_recordset(p_ends::json) AS h (job_id bigint, token bigint, outcome text, event text)
            JOIN outlast_jobs j ON j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'queued'
            JOIN outlast_attempts a ON a.token = ANY (ARRAY[h.token]) AND a.outcome = h.outcome
            WHERE h.event IS NOT NULL
            ON CONFLICT (job_id) DO UPDATE SET token = excluded.token, event = excluded.event, woken = false
            WHERE outlast_waits.token <> excluded.token
            RETURNING event)
        INSERT INTO outlast_upstream_notices (job_id, event) SELECT 0, w.event FROM waits w;
    END IF;

    -- attempts that wait for children, none of which is left
    IF strpos(p_ends, '"blocked"') > 0 THEN
        WITH free AS (
            UPDATE outlast_jobs j SET state = 'queued', position = nextval('outlast_position_seq')
            FROM json_to_recordset(p_ends::json) AS h (job_id bigint, token bigint)
            WHERE j.id = ANY (ARRAY[h.job_id]) AND j.token = h.token AND j.state = 'blocked'
              AND NOT EXISTS (SELECT FROM outlast_dependencies d WHERE d.job_id = j.id AND d.state IN (0, 1, 3))
            RETURNING j.id)
        SELECT array_agg(f.id) INTO v_free FROM free f;
        IF v_free IS NOT NULL THEN PERFORM outlast_line_up_v1(v_free); END IF;
    END IF;
END
$$;
