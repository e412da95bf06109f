-- End queued jobs that have not begun by their expires_at, the first expired first. Returns how many. They are
-- cancelled, uncharged. Their index holds only queued jobs that can expire, wherever they wait.
--
-- Why this is right against
--   * a claim: the session that locks the row first has it. A lock that does not wait (SKIP LOCKED) and finds that the
--     row has changed re-checks it, and a running job is not queued. A claim takes no expired job
--     (outlast_exchange_v1), so a job that is skipped here does not start either.
--   * a late worker: it can end running jobs only, and its token for a job that returned to the queue and expired is
--     old.
--   * a cancel or a requeue: it holds the row, which is skipped here; a requeued job no longer expires.
--   * an enqueue of the same key: see outlast_free_keys_v1. Locking and changing are two statements, as in
--     store/acts.py. Nothing waits, so nothing deadlocks.
CREATE FUNCTION outlast_expire_v1(p_limit integer) RETURNS integer
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_from double precision := outlast_read_from_v1('outlast_jobs_expires'::regclass, v_now);
    v_ids bigint[];
BEGIN
    SELECT array_agg(e.id) INTO v_ids
    FROM (SELECT j.id FROM outlast_jobs j
          WHERE j.state IN ('queued', 'blocked') AND j.expires_at IS NOT NULL
            AND j.expires_at >= v_from AND j.expires_at <= v_now
          ORDER BY j.expires_at LIMIT p_limit
          FOR NO KEY UPDATE SKIP LOCKED) e;
    RETURN outlast_end_expired_v1(v_ids, v_now);
END
$$;
