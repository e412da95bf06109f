-- What each worker reads all the time, at a cost that does not depend on how many workers there are: the
-- highest position ever drawn (if that has not changed, nothing new stands in any line, but what a
-- transaction has drawn before and committed since; the line itself is not looked at: this would walk over
-- its dead entries), in how many seconds a job that is in no line falls due (0 where a suspect waits, which
-- may be due), in how many seconds a schedule is due, the version of what is paused, the marks of
-- those who watch (see outlast_keep_watch_v1), and the next three workers of the same host that have a lock
-- file, in the order of their ids, the first after the last: one row for each, at least one row in all. Reads
-- only, by a few probes of indexes.
CREATE FUNCTION outlast_glance_v1(p_worker bigint, p_boot text)
RETURNS TABLE (
    drawn bigint, next_due double precision, next_tick double precision, pauses text, watches bigint[],
    worker_id bigint, lock_path text, lock_device bigint, lock_inode bigint)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    v_drawn bigint := coalesce(pg_sequence_last_value('outlast_position_seq'), 0);  -- USAGE is enough for it
    v_due double precision;
    v_tick double precision;
    v_pauses text := (SELECT coalesce(string_agg(p.id::text, ',' ORDER BY p.id), '') FROM outlast_pauses p);
    v_watches bigint[] := ARRAY[
        coalesce(pg_sequence_last_value('outlast_watch_1_seq'), 0),
        coalesce(pg_sequence_last_value('outlast_watch_2_seq'), 0),
        coalesce(pg_sequence_last_value('outlast_watch_3_seq'), 0)];
BEGIN
    SELECT outlast_seconds_v1(j.run_at, clock_timestamp()) INTO v_due
    FROM outlast_jobs j WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
    ORDER BY j.run_at LIMIT 1;
    IF EXISTS (SELECT FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0) THEN
        v_due := 0;
    END IF;
    SELECT s.next_tick - extract(epoch FROM clock_timestamp()) INTO v_tick
    FROM outlast_schedules s WHERE NOT s.paused AND s.declared AND s.next_tick IS NOT NULL
    ORDER BY s.next_tick LIMIT 1;
    RETURN QUERY
    SELECT v_drawn, v_due, v_tick, v_pauses, v_watches, n.id, n.lock_path, n.lock_device, n.lock_inode
    FROM (SELECT) AS one
    LEFT JOIN (
        SELECT a.* FROM (
            (SELECT w.id, w.lock_path, w.lock_device, w.lock_inode FROM outlast_workers w
             WHERE w.boot_id = p_boot AND w.id > p_worker AND w.lock_path IS NOT NULL
               AND w.status IN ('active', 'draining')
             ORDER BY w.boot_id, w.id LIMIT 3)
            UNION ALL
            (SELECT w.id, w.lock_path, w.lock_device, w.lock_inode FROM outlast_workers w
             WHERE w.boot_id = p_boot AND w.id < p_worker AND w.lock_path IS NOT NULL
               AND w.status IN ('active', 'draining')
             ORDER BY w.boot_id, w.id LIMIT 3)) a
        LIMIT 3) n ON true;
END
$$;
