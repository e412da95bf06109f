-- Delete ended jobs (pruned, discarded, or kept for no time), with all that is noted of them.
--
-- The caller has just ended these jobs, or holds their rows to delete them: no other
-- session may change them before the commit, after which there is no such job. A write that looks for one by its
-- id and token then finds no row: an end that comes late is refused (outlast_judge_v1), a cancel or a requeue answers
-- as for an unknown id. The key of the job is free from the commit on, as after any other end.
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
    DELETE FROM outlast_jobs j WHERE j.id = ANY (p_ids);
END
$$;
