-- Tell what no worker looks after, by a few probes of indexes, for the look that watchers take all the
-- time: whether there are orphans, whether an attempt is past its hard deadline by p_slack seconds, the
-- clock that says so, and in how many seconds a schedule is due, of however many. Reads only, and holds
-- nothing: a worker that is told here that there is something looks again, with the locks of orphans and
-- facts. What comes up after this is seen by the next look.
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
    v_now timestamptz := clock_timestamp();
    v_deadline oid := 'outlast_jobs_deadline'::regclass; v_deadline_from timestamptz := outlast_head_v1(v_deadline, v_now);
    v_deadline_read bigint := pg_stat_get_xact_tuples_returned(v_deadline); v_first timestamptz;
    v_tick oid := 'outlast_schedules_next'::regclass; v_tick_from timestamptz := outlast_head_v1(v_tick, v_now);
    v_soon timestamptz := v_now + interval '5 seconds'; v_tick_ahead timestamptz := outlast_ahead_v1(v_tick, v_now, '');
    v_tick_read bigint := pg_stat_get_xact_tuples_returned(v_tick); v_first_tick double precision;
BEGIN
    orphans := EXISTS (SELECT FROM outlast_gone_v1());
    SELECT j.hard_deadline INTO v_first FROM outlast_jobs j
    WHERE j.hard_deadline >= v_deadline_from AND j.hard_deadline <= v_now AND j.state = 'running'
    ORDER BY j.hard_deadline LIMIT 1;
    IF pg_stat_get_xact_tuples_returned(v_deadline) - v_deadline_read > 1000 THEN
        PERFORM outlast_dear_v1(v_deadline, v_deadline_from, v_first, v_now, v_deadline_read);
    END IF;
    overdue := coalesce(v_first < v_now - p_slack * interval '1 second', false);
    now := extract(epoch FROM v_now);
    SELECT coalesce(
        (SELECT s.next_tick FROM outlast_schedules s
         WHERE NOT s.paused AND s.declared AND s.next_tick IS NOT NULL
           AND s.next_tick >= extract(epoch FROM v_tick_from)::double precision
           AND s.next_tick <= extract(epoch FROM v_soon)::double precision
         ORDER BY s.next_tick LIMIT 1),
        (SELECT s.next_tick FROM outlast_schedules s
         WHERE NOT s.paused AND s.declared AND s.next_tick IS NOT NULL
           AND s.next_tick >= extract(epoch FROM v_tick_ahead)::double precision
         ORDER BY s.next_tick LIMIT 1))
    INTO v_first_tick;
    IF pg_stat_get_xact_tuples_returned(v_tick) - v_tick_read > 1000 THEN
        PERFORM outlast_dear_v1(v_tick, v_tick_from, to_timestamp(v_first_tick), v_now, v_tick_read);
    END IF;
    IF v_tick_ahead > v_soon THEN v_first_tick := least(v_first_tick, extract(epoch FROM v_soon)); END IF;
    next_tick := v_first_tick - now;
END
$$;
