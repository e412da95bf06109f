-- Show by a few index probes whether there are orphans, whether an attempt is past its hard deadline by p_slack
-- seconds, the time of the database's clock, and in how many seconds a schedule is due. Watchers call this all the
-- time. It holds no locks: a worker that learns of orphans or overdue attempts reads them again with locks
-- (outlast_orphans_v1, outlast_facts_v1). Deadlines are read under the rule of outlast_keep_floor_v1.
CREATE FUNCTION outlast_astray_v1(
    p_slack double precision,
    OUT orphans boolean, OUT overdue boolean, OUT now double precision,
    OUT next_tick double precision)
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_index oid := 'outlast_jobs_deadline'::regclass; v_from double precision := outlast_read_from_v1(v_index, v_now);
    v_read bigint := pg_stat_get_xact_tuples_returned(v_index);
    v_first double precision;
BEGIN
    orphans := EXISTS (SELECT FROM outlast_gone_v1());
    SELECT j.hard_deadline INTO v_first FROM outlast_jobs j
    WHERE j.hard_deadline >= v_from AND j.hard_deadline <= v_now AND j.state = 'running'
    ORDER BY j.hard_deadline LIMIT 1;
    IF pg_stat_get_xact_tuples_returned(v_index) - v_read > 1000 THEN
        PERFORM outlast_keep_floor_v1(v_index, v_from, v_first, v_now, v_read);
    END IF;
    overdue := coalesce(v_first < v_now - p_slack, false);
    now := v_now;
    next_tick := outlast_first_tick_v1(v_now) - now;
END
$$;
