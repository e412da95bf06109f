-- Count the jobs of a queue that need a worker, up to 10,000: due jobs that more workers would take, and running jobs.
-- For autoscalers: divide the count by the number of jobs that a worker has room for. Any program may call it. Each
-- count uses one index and stops at its bound.
--
-- Jobs under limits count if their stream is open, as many as their limits have room for (room). A limit that several
-- streams share has room for all of them together: of what they count, the excess is subtracted. Where limits share
-- streams, that of the one limit with the largest excess is, so the count may still be too high.
--
-- What only an exchange or a worker moves on counts as one job if nothing else is due: otherwise a fleet that was
-- scaled to zero would not come back for it. These are streams and permits with notices, permits whose time has come,
-- jobs that wait for an event or for other jobs about which there are notices, and due schedules.
--
-- Jobs of a paused queue or task are left out. So are jobs that no number of workers could take: workers serve the
-- queue, but no live worker of it, and none among the last thousand rows of workers, has announced the job's task. (If
-- no worker serves the queue, all jobs are counted: a fleet that was scaled to zero has to come back.) Names are found
-- in the JSON of workers and schedules as text, so that an unreadable row stops nothing.
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
    v_lined text[];
    v_task text;
    v_name text;
    v_count integer := 0;
    v_part integer;
BEGIN
    IF NOT EXISTS (SELECT FROM outlast_pauses p
                   WHERE p.kind = 'all' OR (p.kind = 'queue' AND p.name = p_queue)) THEN
        v_paused := ARRAY(SELECT p.name FROM outlast_pauses p WHERE p.kind = 'task');
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
            WHERE t.place < v_steps)
        SELECT array_agg(t.task) INTO v_lined FROM t WHERE t.queue = p_queue;

        FOREACH v_task IN ARRAY coalesce(v_lined, '{}') LOOP
            EXIT WHEN v_count >= v_most;
            v_name := to_json(v_task)::text;
            CONTINUE WHEN v_task = ANY (v_paused) OR v_is_served AND NOT EXISTS (
                SELECT FROM unnest(v_served) s (tasks) WHERE strpos(s.tasks, v_name) > 0);
            SELECT count(*) INTO v_part FROM (
                SELECT FROM outlast_jobs j
                WHERE j.task = v_task AND j.queue = p_queue AND j.position IS NOT NULL AND j.stream IS NULL
                ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT v_most - v_count) c;
            v_count := v_count + v_part;
        END LOOP;

        IF v_count < v_most THEN
            WITH notices AS MATERIALIZED (
                SELECT n.stream, n.permit, n.ended, coalesce(n.task, s.task) AS task, coalesce(n.queue, s.queue) AS queue,
                       s.permits, coalesce(s.idle, true) OR s.blocked = -2 AS may_open
                FROM (SELECT * FROM outlast_notices n ORDER BY n.id LIMIT v_most) n
                LEFT JOIN LATERAL (SELECT s.* FROM outlast_streams s WHERE s.id = n.stream
                                   ORDER BY s.id DESC, s.turn DESC LIMIT 1) s ON true),
            upstream AS MATERIALIZED (SELECT n.job_id, n.event FROM outlast_upstream_notices n ORDER BY n.id LIMIT v_most),
            open AS MATERIALIZED (
                SELECT s.id, s.task, s.permits, s.starts, s.names
                FROM (SELECT s.*, r.starts, r.names
                      FROM (SELECT * FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle
                            ORDER BY s.task, s.queue, s.rank, s.turn LIMIT v_most) s
                      CROSS JOIN LATERAL (
                          SELECT array_agg(outlast_room_v1(
                                     greatest(0, least(v_most, coalesce(p.own_running, l.running) - p.used)), l.spacing, l.burst,
                                     greatest(0, p.tat - greatest(v_now, p.touched_at)), u.cost) ORDER BY u.n) AS starts,
                                 array_agg(p.name ORDER BY u.n) AS names
                          FROM unnest(s.permits, s.costs) WITH ORDINALITY AS u (id, cost, n)
                          LEFT JOIN LATERAL (SELECT p.* FROM outlast_permits p WHERE p.id = u.id
                                             ORDER BY p.id DESC, p.version DESC LIMIT 1) p ON true
                          LEFT JOIN outlast_limits l ON l.name = p.name) r
                      WHERE s.queue = p_queue) s
                CROSS JOIN LATERAL (
                    SELECT FROM outlast_jobs j
                    WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id AND j.position IS NOT NULL
                    ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position)
                    LIMIT coalesce((SELECT min(u) FROM unnest(s.starts) AS u), v_most)) j
                LIMIT v_most),
            parts (task, count, is_moved_on, permits, starts, names) AS (
                SELECT o.task, count(*), false, o.permits, o.starts, o.names
                FROM open o GROUP BY o.id, o.task, o.permits, o.starts, o.names
                UNION ALL
                SELECT j.task, 1, false, NULL, NULL, NULL
                FROM (SELECT j.task FROM outlast_jobs j
                      WHERE j.queue = p_queue AND j.state = 'queued' AND j.position IS NULL AND j.solo >= 0 AND j.run_at <= v_now
                      ORDER BY j.queue, j.run_at LIMIT v_most) j
                UNION ALL
                SELECT n.task, 1, true, NULL, NULL, NULL
                FROM notices n
                WHERE n.queue = p_queue AND n.may_open AND EXISTS (
                    SELECT FROM outlast_jobs j
                    WHERE j.task = n.task AND j.queue = p_queue AND j.stream = n.stream AND j.position IS NOT NULL)
                UNION ALL
                SELECT s.task, 1, true, NULL, NULL, NULL
                FROM (SELECT n.permit AS id FROM notices n
                      UNION SELECT unnest(n.permits) FROM notices n WHERE n.ended > 0
                      UNION SELECT p.id FROM (SELECT p.id FROM outlast_permits p WHERE p.opens_at <= v_now ORDER BY p.opens_at LIMIT v_most) p) f
                CROSS JOIN LATERAL (
                    SELECT s.task FROM (SELECT s.task, s.queue FROM outlast_streams s WHERE s.blocked = f.id
                                        ORDER BY s.blocked, s.rank, s.turn LIMIT 1000) s
                    WHERE s.queue = p_queue LIMIT 1) s
                UNION ALL
                SELECT j.task, 1, true, NULL, NULL, NULL
                FROM (SELECT d.job_id FROM upstream n CROSS JOIN LATERAL (
                          SELECT d.job_id FROM outlast_dependencies d WHERE d.upstream_id = n.job_id LIMIT 1000) d
                      UNION SELECT w.job_id FROM upstream n CROSS JOIN LATERAL (
                          SELECT w.job_id FROM outlast_waits w WHERE w.event = n.event AND NOT w.woken LIMIT 1000) w) d
                JOIN outlast_jobs j ON j.id = ANY (ARRAY[d.job_id]) AND j.queue = p_queue AND j.state IN ('queued', 'blocked') AND j.position IS NULL
                UNION ALL
                SELECT split_part(substr(s.call, length('{"task":"') + 1), '"', 1), 1, true, NULL, NULL, NULL
                FROM (SELECT s.call FROM outlast_schedules s
                      WHERE NOT s.paused AND s.declared AND s.next_tick <= v_now ORDER BY s.next_tick LIMIT v_most) s
                WHERE strpos(s.call, '"queue":' || v_queue) > 0 OR p_queue = 'default' AND strpos(s.call, '"queue":') = 0),
            able AS MATERIALIZED (
                SELECT * FROM parts a
                WHERE a.task <> ALL (v_paused) AND (NOT v_is_served OR EXISTS (
                    SELECT FROM unnest(v_served) t (tasks) WHERE strpos(t.tasks, to_json(a.task)::text) > 0)))
            SELECT greatest(max(a.is_moved_on::integer), v_count + coalesce(sum(a.count) FILTER (WHERE NOT a.is_moved_on), 0)
                   - coalesce((SELECT max(e.count) FROM (
                         SELECT sum(greatest(0, p.count - p.room)) AS count
                         FROM (SELECT u.name, u.id, sum(a.count) AS count, min(u.room) AS room
                               FROM able a CROSS JOIN LATERAL unnest(a.permits, a.starts, a.names) AS u (id, room, name)
                               GROUP BY u.name, u.id) p
                         GROUP BY p.name) e), 0))
            INTO v_count FROM able a;
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
