-- Find the unfinished job that has a key, for an enqueue that may replace it (p_replaces) or take its key
-- (p_until_start). No row: the key is free now. Otherwise the row shows the job, and whether it has got the new
-- arguments and time.
--
-- Only a job that was stored by such an enqueue (yields_key in its policy, which no other text in a policy can imitate)
-- is changed, or loses its key: so roles that may only enqueue change no other.
--
-- A job that has not begun is changed in place: it keeps its id, waits where the new arguments do, and is due at the
-- new time, at most p_due_max seconds after it was first enqueued. Its old stream gets no notice: the next claim there
-- finds the stream without the job. A job that has begun loses its key, on which its attempt, its retries and its end
-- do not depend.
--
-- Why this is right against
--   * a claim: this waits for the row, and claims skip locked rows. If the claim was first, the job has begun once this
--     has its lock; if this was first, the claim finds the new row: it locks before it reads arguments.
--   * an end or a reap of the attempt that loses its key: they skip the locked row, and are told to try again. So they
--     wait for as long as the transaction of this enqueue is open.
--   * another enqueue of the key: of two at once, the second waits here or at the unique index, and then sees the
--     commit of the first; its arguments are the newest.
--   * deadlock: a batch calls this for its keys in their order, one after the other.
-- Roles that may only enqueue may not change jobs, so this runs as its owner, for roles to which it is granted.
CREATE FUNCTION outlast_replace_v1(
    p_key text, p_tasks text[], p_args text, p_delay float8, p_run_at float8, p_due_max float8, p_aged_by float8,
    p_replaces boolean, p_until_start boolean, p_notify boolean,
    p_queue text, p_priority integer, p_tenant text, p_stream bigint, p_needs text
) RETURNS TABLE (id bigint, replaced boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_due double precision;
    v_position bigint;
    j record;
BEGIN
    SELECT h.id, h.state, h.task, h.attempt_count, h.enqueued_at, h.expires_at, h.position, h.stream,
           strpos(h.policy, '"yields_key":true') > 0 AS yields INTO j
    FROM outlast_jobs h WHERE h.key = p_key AND h.ended_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    IF j.task <> ALL (p_tasks) OR NOT j.yields OR j.attempt_count = 0 AND (NOT p_replaces OR j.expires_at <= v_now) THEN
        RETURN QUERY SELECT j.id, false;
        RETURN;
    END IF;
    IF j.attempt_count > 0 THEN
        IF p_until_start THEN
            UPDATE outlast_jobs h SET key = NULL WHERE h.id = j.id;
        ELSE
            RETURN QUERY SELECT j.id, false;
        END IF;
        RETURN;
    END IF;
    v_due := least(coalesce(p_run_at, v_now + p_delay),
                   j.enqueued_at + p_due_max);
    IF j.state = 'queued' AND v_due <= v_now THEN
        v_position := coalesce(j.position, nextval('outlast_position_seq'));
    END IF;
    UPDATE outlast_jobs h
    SET args = p_args, run_at = v_due, position = v_position,
        queue = p_queue, priority = p_priority, tenant = p_tenant, stream = p_stream, needs = p_needs,
        aged = ((v_due - p_aged_by) * 1000)::bigint
    WHERE h.id = j.id;
    IF v_position IS NOT NULL THEN PERFORM outlast_line_up_v1(ARRAY[j.id]); END IF;
    IF j.position IS NOT NULL AND (v_position IS NULL OR p_stream IS DISTINCT FROM j.stream) THEN
        INSERT INTO outlast_notices (permit)
        SELECT unnest(s.permits) FROM outlast_streams s WHERE s.id = j.stream AND cardinality(s.permits) > 1;
    END IF;
    IF v_position IS NOT NULL AND (j.position IS NULL OR p_stream IS DISTINCT FROM j.stream OR p_aged_by IS NOT NULL) THEN
        PERFORM outlast_note_v1(ARRAY[j.id], p_ran => false, p_had_ended => false);
        IF p_notify THEN PERFORM pg_notify(outlast_channel_v1(), 'jobs:' || v_position || ':1:' || left(p_queue, 1000)); END IF;
    END IF;
    RETURN QUERY SELECT j.id, true;
END
$$;
