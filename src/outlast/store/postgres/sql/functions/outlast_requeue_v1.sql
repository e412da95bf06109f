-- Requeue dead and cancelled jobs, one by one in the order of their ids. Their expiry and their dependencies are
-- dropped, since a person asked for this run. The unique index on the keys of unfinished jobs decides a race with an
-- enqueue of the same key; the loser's row is left as it was, by a subtransaction, which jobs without a key do not
-- need: with more than 64 in a transaction, all who meet its rows would search for them on disk. Tokens and the count of
-- attempts go on rising, the budgets start again, suspicion ends. Jobs that were cancelled because they waited for one
-- of these wait again (outlast_resolve_v1); if their rows are locked, the next exchange does that.
CREATE FUNCTION outlast_requeue_v1(p_ids bigint[], p_from_scratch boolean, p_notify boolean)
RETURNS TABLE (job_id bigint, answer text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
    v_state text;
    v_key text;
    v_revived bigint[] := '{}';
    v_awaited boolean := false;
    v_one boolean;
    v_resolved record;
BEGIN
    FOREACH v_id IN ARRAY ARRAY(SELECT DISTINCT i FROM unnest(p_ids) AS i ORDER BY i) LOOP
        SELECT j.state, j.key, j.awaited INTO v_state, v_key, v_one FROM outlast_jobs j WHERE j.id = v_id FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        job_id := v_id;
        answer := CASE v_state WHEN 'dead' THEN 'requeued' WHEN 'cancelled' THEN 'requeued'
                               WHEN 'completed' THEN 'completed' ELSE 'not_ended' END;
        IF answer = 'requeued' THEN
            IF v_key IS NULL THEN
                PERFORM outlast_revive_v1(v_id, p_from_scratch);
            ELSE
                PERFORM outlast_free_keys_v1(ARRAY[v_key]);
                BEGIN
                    PERFORM outlast_revive_v1(v_id, p_from_scratch);
                EXCEPTION WHEN unique_violation THEN
                    answer := 'key_taken';
                END;
            END IF;
        END IF;
        IF answer = 'requeued' THEN
            v_revived := v_revived || v_id;
            v_awaited := v_awaited OR v_one;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM outlast_note_v1(v_revived, p_ran => false, p_had_ended => true);
    IF v_awaited THEN
        FOR v_try IN 1..20 LOOP
            v_resolved := outlast_resolve_v1(500);
            v_revived := v_revived || coalesce(v_resolved.ids, '{}');
            EXIT WHEN NOT v_resolved.more;
        END LOOP;
    END IF;
    IF p_notify THEN PERFORM outlast_notify_v1(v_revived); END IF;
END
$$;
