-- Read the values that each worker polls all the time, by a few index probes, at a cost that does not depend on the
-- number of workers.
--
--   * drawn: the highest position drawn so far. If it has not changed, no line has a new job, except jobs of
--     transactions that drew their positions earlier and committed since. The line itself is not read, since that would
--     walk over its dead entries.
--   * next_due: 0 if there is a notice to fold; otherwise the seconds until a limit opens by time, or a job that is in
--     no line falls due.
--   * next_tick: the seconds until a schedule is due.
--   * pauses: the version of the pauses.
--   * watches: the marks of the watchers (outlast_keep_watch_v1).
--   * neighbours: the next three workers by id whose lock files this worker may see, the first following the last.
--
-- watches and neighbours are JSON, because a driver looks up the type of an array once for each connection.
--
-- A worker may see the lock files of workers with the same boot of the host, in the same directory of the same file
-- system. Containers of a host share its boot, and users its file systems: this worker cannot test the lock file of a
-- neighbour elsewhere, and three such neighbours would hide the one that only this worker can find dead.
CREATE FUNCTION outlast_peek_v1(
    p_worker bigint,
    OUT drawn bigint, OUT next_due double precision, OUT next_tick double precision, OUT pauses text,
    OUT watches text, OUT neighbours text)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_first double precision := outlast_first_due_v1(v_now);
    v_opens double precision;
BEGIN
    drawn := coalesce(pg_sequence_last_value('outlast_position_seq'), 0);  -- needs only the privilege USAGE
    watches := json_build_array(
        coalesce(pg_sequence_last_value('outlast_watch_1_seq'), 0),
        coalesce(pg_sequence_last_value('outlast_watch_2_seq'), 0),
        coalesce(pg_sequence_last_value('outlast_watch_3_seq'), 0));
    SELECT (SELECT coalesce(string_agg(p.id::text, ',' ORDER BY p.id), '') FROM outlast_pauses p),
           CASE WHEN EXISTS (SELECT FROM outlast_notices) THEN v_now
                ELSE (SELECT p.opens_at FROM outlast_permits p WHERE p.opens_at IS NOT NULL
                      ORDER BY p.opens_at LIMIT 1) END,
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
    INTO pauses, v_opens, neighbours;
    v_first := least(v_first, v_opens);
    next_due := v_first - date_part('epoch', clock_timestamp());
    next_tick := outlast_first_tick_v1(v_now) - date_part('epoch', clock_timestamp());
END
$$;
