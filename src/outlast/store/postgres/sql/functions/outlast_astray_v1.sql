-- Tell what no worker looks after, by a few probes of indexes, for the look that each worker takes all
-- the time: whether there are orphans, whether an attempt is past its hard deadline by p_slack
-- seconds, the clock that says so, in how many seconds a job that is in no line falls due (0 where a
-- suspect waits, which may be due), and the highest position ever drawn: if that has not changed,
-- nothing new stands in any line, but what a transaction has drawn before and committed since. (The
-- line itself is not looked at: this would walk over its dead entries.) And in how many seconds a
-- schedule is due, of however many. Reads only, and holds nothing:
-- a worker that is told here that there is something looks again, with the locks of orphans and facts. What
-- comes up after this is seen by the next look.
CREATE FUNCTION outlast_astray_v1(
    p_slack double precision,
    OUT orphans boolean, OUT overdue boolean, OUT now double precision,
    OUT next_due double precision, OUT drawn bigint, OUT next_tick double precision)
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
    SELECT outlast_seconds_v1(j.run_at, v_now) INTO next_due
    FROM outlast_jobs j WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
    ORDER BY j.run_at LIMIT 1;
    IF EXISTS (SELECT FROM outlast_jobs j WHERE j.state = 'queued' AND j.solo > 0) THEN
        next_due := 0;
    END IF;
    SELECT s.next_tick - now INTO next_tick
    FROM outlast_schedules s WHERE NOT s.paused AND s.declared AND s.next_tick IS NOT NULL
    ORDER BY s.next_tick LIMIT 1;
    drawn := coalesce(pg_sequence_last_value('outlast_position_seq'), 0);  -- USAGE is enough for it
END
$$;
