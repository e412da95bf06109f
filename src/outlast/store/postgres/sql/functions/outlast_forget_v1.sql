-- Delete ended jobs (pruned, discarded, or kept for no time) with their attempts, labels, logs, steps, dependencies and
-- waits.
--
-- The caller has just ended these jobs in this transaction, or has locked their rows: no other session can change them
-- before the commit. A later write by id and token finds no row: a late end is refused (outlast_judge_v1), and a cancel
-- or a requeue gets the answer for an unknown id.
CREATE FUNCTION outlast_forget_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    DELETE FROM outlast_attempts a WHERE a.job_id = ANY (p_ids);
    DELETE FROM outlast_labels l WHERE l.job_id = ANY (p_ids);
    DELETE FROM outlast_logs l WHERE l.job_id = ANY (p_ids);
    DELETE FROM outlast_dependencies d WHERE d.job_id = ANY (p_ids);
    DELETE FROM outlast_steps s WHERE s.job_id = ANY (p_ids);
    IF FOUND THEN DELETE FROM outlast_waits w WHERE w.job_id = ANY (p_ids); END IF;  -- a job that has waited has a step
    DELETE FROM outlast_jobs j WHERE j.id = ANY (p_ids);
END
$$;
