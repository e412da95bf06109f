-- Lock running jobs whose worker is not alive or has no row, longest-running first, and return the facts to decide on.
--
-- The list of (id, token) is made first, without locks; then rows are locked by joining on both. A plain "NOT EXISTS
-- (live worker)" under the lock would check the newest version of the job against the old snapshot of the workers, miss
-- a worker that registered meanwhile, and take its job away. A lost or stopped worker never comes back, so a pair that
-- was an orphan once stays one until its token changes. The list is a hundred times as long as p_limit, so that locked
-- rows, for example by transactions of tasks that outlive their worker, do not hide the rows behind them.
CREATE FUNCTION outlast_orphans_v1(p_limit integer)
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
DECLARE
    v_ids bigint[];
    v_tokens bigint[];
BEGIN
    WITH orphan AS MATERIALIZED (
        SELECT j.id, j.token
        FROM outlast_gone_v1() AS g (id) JOIN outlast_jobs j ON j.worker_id = g.id
        ORDER BY j.started_at LIMIT 100 * p_limit)
    SELECT array_agg(o.id), array_agg(o.token) INTO v_ids, v_tokens FROM orphan o;
    RETURN QUERY SELECT * FROM outlast_facts_v1(v_ids, v_tokens, p_limit);
END
$$;
