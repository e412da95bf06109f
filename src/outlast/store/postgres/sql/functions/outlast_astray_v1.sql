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
BEGIN
    orphans := EXISTS (SELECT FROM outlast_gone_v1());
    overdue := EXISTS (
        SELECT FROM outlast_jobs j
        WHERE j.hard_deadline < v_now - p_slack * interval '1 second' AND j.state = 'running');
    now := extract(epoch FROM v_now);
    SELECT s.next_tick - now INTO next_tick
    FROM outlast_schedules s WHERE NOT s.paused AND s.declared AND s.next_tick IS NOT NULL
    ORDER BY s.next_tick LIMIT 1;
END
$$;
