-- Free keys that are held by expired jobs: end each such job as outlast_expire_v1 does, so that the caller's own job
-- can have the key in the same transaction. Returns how many keys were freed.
--
-- Why this is right against
--   * a claim, a sweep, a cancel, another enqueue: unlike a sweep, this waits for the row; otherwise the caller would
--     be given a job that never runs. If the row is then running or has ended, it is left as it is.
--   * deadlock: rows are waited for in the order of their keys, as `keyed` of enqueue.sql waits at the unique index;
--     claims, ends and sweeps wait for no job.
-- It runs as its owner, for roles to which it is granted, and not for PUBLIC, since any caller could block enqueuers.
-- It ends no job that could still begin.
CREATE FUNCTION outlast_free_keys_v1(p_keys text[]) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_ids bigint[];
BEGIN
    SELECT array_agg(e.id) INTO v_ids
    FROM (SELECT j.id FROM outlast_jobs j
          WHERE j.key = ANY (p_keys) AND j.key IS NOT NULL AND j.ended_at IS NULL
            AND j.state IN ('queued', 'blocked') AND j.expires_at <= v_now
          ORDER BY j.key FOR NO KEY UPDATE) e;
    RETURN outlast_end_expired_v1(v_ids, v_now);
END
$$;
