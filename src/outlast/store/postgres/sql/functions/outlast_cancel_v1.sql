-- Cancel queued jobs and request the cancel of running ones. Rows are locked in the order of their ids, so that two
-- of these calls never deadlock; exchange and reclaim wait for no row at all. Locking and changing are two
-- statements, so that the second sees what was committed while the first waited: a job that was claimed a moment ago
-- gets the request, and a job that was completed a moment ago has ended. (A single statement was seen to check the
-- constraints against a mixture of the row's two versions.)
--
-- Without p_wait, locked rows are answered 'held' and left as they are, so that one row that stays locked keeps no
-- other job from being cancelled. The caller then calls again for those alone, with p_wait.
CREATE FUNCTION outlast_cancel_v1(p_ids bigint[], p_notify boolean, p_wait boolean)
RETURNS TABLE (job_id bigint, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_free bigint[];
    v_ids bigint[];
    v_states text[];
    v_workers bigint[];
    v_gone bigint[]; v_noted bigint[];
BEGIN
    IF p_wait THEN
        PERFORM FROM outlast_jobs j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE;
        v_free := p_ids;
    ELSE
        SELECT coalesce(array_agg(l.id), '{}') INTO v_free
        FROM (SELECT j.id FROM outlast_jobs j WHERE j.id = ANY (p_ids)
              ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) l;
    END IF;

    v_now := clock_timestamp();
    SELECT array_agg(j.id), array_agg(CASE WHEN j.id = ANY (v_free) THEN j.state ELSE 'held' END),
           array_agg(DISTINCT j.worker_id)
               FILTER (WHERE j.worker_id IS NOT NULL AND j.id = ANY (v_free))
    INTO v_ids, v_states, v_workers
    FROM outlast_jobs j WHERE j.id = ANY (p_ids);

    WITH asked AS (
        UPDATE outlast_jobs j
        SET cancel_requested = true, position = NULL,
            state = CASE WHEN j.state IN ('queued', 'blocked') THEN 'cancelled' ELSE j.state END,
            ended_at = CASE WHEN j.state IN ('queued', 'blocked') THEN v_now END,
            prune_at = CASE WHEN j.state IN ('queued', 'blocked') AND j.keep IS NOT NULL
                            THEN v_now + greatest(0, least(j.keep, 1e9)) * interval '1 second' END
        WHERE j.id = ANY (v_free) AND j.state IN ('queued', 'blocked', 'running')
        RETURNING j.id, j.state = 'cancelled' AND j.keep <= 0 AND NOT j.awaited AS gone,
                  j.state = 'cancelled' AND (j.stream IS NOT NULL OR j.awaited) AS noted)
    SELECT array_agg(a.id) FILTER (WHERE a.gone), array_agg(a.id) FILTER (WHERE a.noted) INTO v_gone, v_noted FROM asked a;
    IF v_noted IS NOT NULL THEN PERFORM outlast_note_v1(v_noted, p_ran => false, p_had_ended => false); END IF;
    IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;

    IF p_notify AND v_workers IS NOT NULL THEN
        PERFORM pg_notify(outlast_channel_v1(), 'cancel:' || w::text) FROM unnest(v_workers) AS w;
    END IF;
    RETURN QUERY
    SELECT s.id, CASE s.state WHEN 'queued' THEN 'cancelled' WHEN 'blocked' THEN 'cancelled' WHEN 'running' THEN 'requested'
                              WHEN 'held' THEN 'held' ELSE 'ended' END
    FROM unnest(v_ids, v_states) AS s (id, state);
END
$$;
