-- Count the jobs of a queue that need a worker, up to 10,000: due jobs that more workers would take, and running jobs.
-- For autoscalers: divide the count by the number of jobs that a worker has room for. Any program may call it. Each
-- count uses one index and stops at its bound.
--
-- Jobs under limits count if their stream is open, as many as their limits have room for. Streams are counted one after
-- the other: what one takes of a limit, no later one has.
--
-- What only an exchange or a worker moves on counts as one job if nothing else is due: otherwise a fleet that was
-- scaled to zero would not come back for it. These are streams and permits with notices, permits whose time has come,
-- jobs that wait for an event or for other jobs about which there are notices, and due schedules.
--
-- Jobs of a paused queue, task or tenant are left out; of a look that stops at its bound, one job counts all the same,
-- since others may follow those of paused tenants. Left out, too, are jobs that no number of workers could take: workers
-- serve the queue, but no live worker of it, and none among the last thousand rows of workers, has announced the job's
-- task. (If no worker serves the queue, all jobs are counted: a fleet that was scaled to zero has to come back.) Names
-- are found in the JSON of workers and schedules as text, so that an unreadable row stops nothing.
CREATE FUNCTION outlast_wanted_v1(p_queue text) RETURNS integer
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_most CONSTANT integer := 10000;
    v_steps CONSTANT integer := 2000;  -- at most two for each task
    v_now CONSTANT double precision := date_part('epoch', statement_timestamp());
    v_queue text := to_json(p_queue)::text;
    v_served text[];  -- column tasks of the workers that serve the queue
    v_is_served boolean;
    v_paused text[];
    v_tenants text[];
    v_tasks text[];
    v_task text;
    v_count integer := 0;
    v_part integer;
    v_room integer; v_one integer; v_need integer := 1; v_first integer;
    v_ids bigint[]; v_of text[]; v_streams integer[]; v_ones integer[]; v_costs double precision[];
    v_free integer[]; v_spacing double precision[]; v_burst double precision[]; v_ahead double precision[];
BEGIN
    IF NOT EXISTS (SELECT FROM outlast_pauses p
                   WHERE p.kind = 'all' OR (p.kind = 'queue' AND p.name = p_queue)) THEN
        v_paused := ARRAY(SELECT p.name FROM outlast_pauses p WHERE p.kind = 'task');
        v_tenants := ARRAY(SELECT p.name FROM outlast_pauses p WHERE p.kind = 'tenant');
        v_is_served := EXISTS (
            SELECT FROM outlast_workers w WHERE w.status IN ('active', 'draining')
              AND (w.queues = '[]' OR strpos(w.queues, v_queue) > 0));
        IF v_is_served THEN
            v_served := ARRAY(
                SELECT DISTINCT w.tasks FROM (
                    SELECT * FROM (SELECT o.queues, o.tasks FROM outlast_workers o
                                   WHERE o.status IN ('active', 'draining') LIMIT v_most) here
                    UNION ALL
                    SELECT * FROM (SELECT o.queues, o.tasks FROM outlast_workers o ORDER BY o.id DESC LIMIT 1000) late) w
                WHERE w.queues = '[]' OR strpos(w.queues, v_queue) > 0);
        END IF;

        WITH RECURSIVE t (task, queue, place) AS (
            (SELECT j.task, j.queue, 1 FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NULL
             ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
            UNION ALL
            SELECT n.task, n.queue, t.place + 1
            FROM t CROSS JOIN LATERAL (
                (SELECT j.task, j.queue FROM outlast_jobs j
                 WHERE t.queue < p_queue AND j.position IS NOT NULL AND j.stream IS NULL AND (j.task, j.queue) >= (t.task, p_queue)
                 ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
                UNION ALL
                (SELECT j.task, j.queue FROM outlast_jobs j
                 WHERE t.queue >= p_queue AND j.position IS NOT NULL AND j.stream IS NULL AND j.task > t.task
                 ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)) n
            WHERE t.place < v_steps),
        s (task, place) AS (
            (SELECT s.task, 1 FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle
             ORDER BY s.task, s.queue, s.rank, s.turn LIMIT 1)
            UNION ALL
            SELECT n.task, s.place + 1
            FROM s CROSS JOIN LATERAL (
                SELECT o.task FROM outlast_streams o WHERE o.blocked IS NULL AND NOT o.idle AND o.task > s.task
                ORDER BY o.task, o.queue, o.rank, o.turn LIMIT 1) n
            WHERE s.place < v_steps)
        SELECT array_agg(a.task) INTO v_tasks
        FROM (SELECT t.task FROM t WHERE t.queue = p_queue UNION SELECT s.task FROM s) a
        WHERE a.task <> ALL (v_paused) AND (NOT v_is_served OR EXISTS (
            SELECT FROM unnest(v_served) w (tasks) WHERE strpos(w.tasks, to_json(a.task)::text) > 0));

        FOREACH v_task IN ARRAY coalesce(v_tasks, '{}') LOOP
            EXIT WHEN v_count >= v_most;
            SELECT greatest(count(*) FILTER (WHERE (c.tenant = ANY (v_tenants)) IS NOT TRUE), (count(*) >= v_most - v_count)::integer)
            INTO v_part FROM (
                SELECT j.tenant FROM outlast_jobs j
                WHERE j.task = v_task AND j.queue = p_queue AND j.position IS NOT NULL AND j.stream IS NULL
                ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT v_most - v_count) c;
            v_count := v_count + v_part;
        END LOOP;

        WITH open AS MATERIALIZED (
            SELECT s.*, (row_number() OVER ())::integer AS n
            FROM unnest(v_tasks) AS t (task)
            CROSS JOIN LATERAL (
                SELECT s.id, s.task, s.permits, s.costs FROM outlast_streams s
                WHERE s.task = t.task AND s.queue = p_queue AND s.blocked IS NULL AND NOT s.idle
                  AND (s.tenant = ANY (v_tenants)) IS NOT TRUE
                ORDER BY s.task, s.queue, s.rank, s.turn LIMIT v_most - v_count) s),
        need AS MATERIALIZED (
            SELECT o.n, u.id, u.cost, (dense_rank() OVER (ORDER BY u.id))::integer AS one
            FROM open o CROSS JOIN LATERAL unnest(o.permits, o.costs) AS u (id, cost))
        SELECT o.ids, o.tasks, d.streams, d.ones, d.costs, p.free, p.spacing, p.burst, p.ahead
        INTO v_ids, v_of, v_streams, v_ones, v_costs, v_free, v_spacing, v_burst, v_ahead
        FROM (SELECT array_agg(o.id ORDER BY o.n) AS ids, array_agg(o.task ORDER BY o.n) AS tasks FROM open o) o,
             (SELECT array_agg(d.n ORDER BY d.n) AS streams, array_agg(d.one ORDER BY d.n) AS ones,
                     array_agg(d.cost ORDER BY d.n) AS costs FROM need d) d,
             (SELECT array_agg(greatest(0, least(v_most, coalesce(p.own_running, l.running) - p.used)) ORDER BY u.one) AS free,
                     array_agg(l.spacing ORDER BY u.one) AS spacing, array_agg(l.burst ORDER BY u.one) AS burst,
                     array_agg(greatest(0, p.tat - greatest(v_now, p.touched_at)) ORDER BY u.one) AS ahead
              FROM (SELECT DISTINCT d.id, d.one FROM need d) u
              LEFT JOIN LATERAL (SELECT p.* FROM outlast_permits p WHERE p.id = u.id
                                 ORDER BY p.id DESC, p.version DESC LIMIT 1) p ON true
              LEFT JOIN outlast_limits l ON l.name = p.name) p;
        FOR i IN 1..coalesce(cardinality(v_ids), 0) LOOP
            EXIT WHEN v_count >= v_most;
            v_room := v_most - v_count;
            v_first := v_need;
            WHILE v_streams[v_need] = i LOOP
                v_one := v_ones[v_need];
                v_room := least(v_room, outlast_room_v1(v_free[v_one], v_spacing[v_one], v_burst[v_one], v_ahead[v_one], v_costs[v_need]));
                v_need := v_need + 1;
            END LOOP;
            CONTINUE WHEN v_room = 0;
            SELECT count(*) INTO v_part FROM (
                SELECT FROM (SELECT j.tenant FROM outlast_jobs j
                             WHERE j.task = v_of[i] AND j.queue = p_queue AND j.stream = v_ids[i] AND j.position IS NOT NULL
                             ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT v_most) j
                WHERE (j.tenant = ANY (v_tenants)) IS NOT TRUE LIMIT v_room) c;
            v_count := v_count + v_part;
            FOR k IN v_first..v_need - 1 LOOP
                v_one := v_ones[k];
                v_free[v_one] := v_free[v_one] - v_part;
                v_ahead[v_one] := v_ahead[v_one] + v_part * v_costs[k] * coalesce(v_spacing[v_one], 0);
            END LOOP;
        END LOOP;

        IF v_count < v_most THEN
            WITH notices AS MATERIALIZED (
                SELECT n.stream, n.permit, n.ended, coalesce(n.task, s.task) AS task, coalesce(n.queue, s.queue) AS queue,
                       s.permits, coalesce(s.idle, true) OR s.blocked = -2 AS may_open
                FROM (SELECT * FROM outlast_notices n ORDER BY n.id LIMIT v_most) n
                LEFT JOIN LATERAL (SELECT s.* FROM outlast_streams s WHERE s.id = n.stream
                                   ORDER BY s.id DESC, s.turn DESC LIMIT 1) s ON true),
            upstream AS MATERIALIZED (SELECT n.job_id, n.event FROM outlast_upstream_notices n ORDER BY n.id LIMIT v_most),
            parts (task, tenant, is_moved_on) AS (
                SELECT j.task, CASE WHEN row_number() OVER () < v_most THEN j.tenant END, false
                FROM (SELECT j.task, j.tenant FROM outlast_jobs j
                      WHERE j.queue = p_queue AND j.state = 'queued' AND j.position IS NULL AND j.solo >= 0 AND j.run_at <= v_now
                      ORDER BY j.queue, j.run_at LIMIT v_most) j
                UNION ALL
                SELECT n.task, NULL, true
                FROM notices n
                WHERE n.queue = p_queue AND n.may_open AND EXISTS (
                    SELECT FROM outlast_jobs j
                    WHERE j.task = n.task AND j.queue = p_queue AND j.stream = n.stream AND j.position IS NOT NULL)
                UNION ALL
                SELECT s.task, NULL, true
                FROM (SELECT n.permit AS id FROM notices n
                      UNION SELECT unnest(n.permits) FROM notices n WHERE n.ended > 0
                      UNION SELECT p.id FROM (SELECT p.id FROM outlast_permits p WHERE p.opens_at <= v_now ORDER BY p.opens_at LIMIT v_most) p) f
                CROSS JOIN LATERAL (
                    SELECT s.task FROM (SELECT s.task, s.queue FROM outlast_streams s WHERE s.blocked = f.id
                                        ORDER BY s.blocked, s.rank, s.turn LIMIT 1000) s
                    WHERE s.queue = p_queue LIMIT 1) s
                UNION ALL
                SELECT j.task, j.tenant, true
                FROM (SELECT d.job_id FROM upstream n CROSS JOIN LATERAL (
                          SELECT d.job_id FROM outlast_dependencies d WHERE d.upstream_id = n.job_id LIMIT 1000) d
                      UNION SELECT w.job_id FROM upstream n CROSS JOIN LATERAL (
                          SELECT w.job_id FROM outlast_waits w WHERE w.event = n.event AND NOT w.woken LIMIT 1000) w) d
                JOIN outlast_jobs j ON j.id = ANY (ARRAY[d.job_id]) AND j.queue = p_queue AND j.state IN ('queued', 'blocked') AND j.position IS NULL
                UNION ALL
                SELECT split_part(substr(s.call, length('{"task":"') + 1), '"', 1), NULL, true
                FROM (SELECT s.call FROM outlast_schedules s
                      WHERE NOT s.paused AND s.declared AND s.next_tick <= v_now ORDER BY s.next_tick LIMIT v_most) s
                WHERE strpos(s.call, '"queue":' || v_queue) > 0 OR p_queue = 'default' AND strpos(s.call, '"queue":') = 0)
            SELECT greatest(max(a.is_moved_on::integer), v_count + count(*) FILTER (WHERE NOT a.is_moved_on))
            INTO v_count FROM parts a
            WHERE a.task <> ALL (v_paused) AND (a.tenant = ANY (v_tenants)) IS NOT TRUE AND (NOT v_is_served OR EXISTS (
                SELECT FROM unnest(v_served) t (tasks) WHERE strpos(t.tasks, to_json(a.task)::text) > 0));
        END IF;
    END IF;
    IF v_count < v_most THEN
        SELECT v_count + count(*) INTO v_count FROM (
            SELECT j.queue FROM outlast_jobs j WHERE j.worker_id IS NOT NULL
            ORDER BY j.worker_id LIMIT v_most) c
        WHERE c.queue = p_queue;
    END IF;
    RETURN least(v_count, v_most);
END
$$;
