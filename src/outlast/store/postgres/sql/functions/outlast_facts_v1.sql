-- Lock exactly these attempts, if they are current, and return the facts to decide on. Rows that other sessions hold
-- are left for later. A live worker hands in its end through the same lock (id, token, running): the first to lock
-- closes the attempt, and the other is refused.
CREATE FUNCTION outlast_facts_v1(
    p_ids bigint[], p_tokens bigint[], p_limit integer DEFAULT NULL)
RETURNS TABLE (
    job_id bigint, token bigint, failures integer, losses integer, policy text,
    cancel_requested boolean, solo smallint, incident bigint, worker_id bigint,
    worker text, host text, progress text, checkpoint_age double precision, cause text,
    task text, queue text, attempts integer, began boolean, handed_back boolean)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.id, j.token, j.failures, j.losses, j.policy, j.cancel_requested, j.solo,
           j.incident, j.worker_id, w.name, w.host, j.progress,
           date_part('epoch', clock_timestamp()) - j.checkpoint_at,
           w.cause, j.task, j.queue, j.attempt_count, coalesce(j.token <= w.begun, true), coalesce(w.begun = 0, false)
    FROM unnest(p_ids, p_tokens) AS o (id, token)
    JOIN outlast_jobs j ON j.id = ANY (ARRAY[o.id]) AND j.token = o.token AND j.state = 'running'
    LEFT JOIN outlast_workers w ON w.id = j.worker_id
    LIMIT p_limit FOR NO KEY UPDATE OF j SKIP LOCKED;
END
$$;
