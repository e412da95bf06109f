-- What each worker reads all the time, at a cost that does not depend on how many workers there are: the
-- highest position ever drawn (if that has not changed, nothing new stands in any line, but what a
-- transaction has drawn before and committed since; the line itself is not looked at: this would walk over
-- its dead entries), in how many seconds a job that is in no line falls due (of suspects, one that this worker
-- may take: outlast_suspect_due_v1), in how many seconds a schedule is due, the version of what is paused, the marks of
-- those who watch (see outlast_keep_watch_v1), and the next three workers whose lock files this one may see, in
-- the order of their ids, the first after the last. Marks and neighbours are JSON: a driver would ask what an array
-- is, once for each connection. Reads only, by a few probes of indexes.
--
-- May see: those of the same boot of the host whose lock file is in the same directory of the same file system.
-- Containers of a host share its boot, and users its file systems: a neighbour of another one tells this worker
-- nothing, and three of them would hide the one that only this worker can find dead.
CREATE FUNCTION outlast_peek_v1(
    p_worker bigint,
    OUT drawn bigint, OUT next_due double precision, OUT next_tick double precision, OUT pauses text,
    OUT watches text, OUT neighbours text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_first timestamptz := outlast_first_due_v1(v_now);
    v_suspects boolean;
BEGIN
    drawn := coalesce(pg_sequence_last_value('outlast_position_seq'), 0);  -- USAGE is enough for it
    watches := json_build_array(
        coalesce(pg_sequence_last_value('outlast_watch_1_seq'), 0),
        coalesce(pg_sequence_last_value('outlast_watch_2_seq'), 0),
        coalesce(pg_sequence_last_value('outlast_watch_3_seq'), 0));
    SELECT (SELECT coalesce(string_agg(p.id::text, ',' ORDER BY p.id), '') FROM outlast_pauses p),
           EXISTS (SELECT FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0),
           (SELECT json_agg(json_build_array(n.id, n.lock_path, n.lock_device, n.lock_inode))::text
            FROM outlast_workers me
            CROSS JOIN LATERAL (
                (SELECT w.id, w.lock_path, w.lock_device, w.lock_inode FROM outlast_workers w
                 WHERE w.boot_id = me.boot_id AND w.lock_device = me.lock_device AND w.id > p_worker
                   AND substring(w.lock_path FROM '^.*/') = substring(me.lock_path FROM '^.*/')
                   AND w.status IN ('active', 'draining')
                 ORDER BY w.boot_id, w.lock_device, w.id LIMIT 3)
                UNION ALL
                (SELECT w.id, w.lock_path, w.lock_device, w.lock_inode FROM outlast_workers w
                 WHERE w.boot_id = me.boot_id AND w.lock_device = me.lock_device AND w.id < p_worker
                   AND substring(w.lock_path FROM '^.*/') = substring(me.lock_path FROM '^.*/')
                   AND w.status IN ('active', 'draining')
                 ORDER BY w.boot_id, w.lock_device, w.id LIMIT 3)
                LIMIT 3) n
            WHERE me.id = p_worker)
    INTO pauses, v_suspects, neighbours;
    IF v_suspects THEN v_first := least(v_first, outlast_suspect_due_v1(p_worker, v_now)); END IF;
    next_due := outlast_seconds_v1(v_first, clock_timestamp());
    next_tick := outlast_first_tick_v1(v_now) - extract(epoch FROM clock_timestamp());
END
$$;
