-- Count the jobs of a queue that need a worker, up to 10,000: due jobs that more workers would take, and running jobs.
-- For autoscalers: divide the count by the number of jobs that a worker has room for. Any program may call it. Each
-- count uses one index and stops at its bound.
--
-- Jobs under limits count if their stream is open: no further worker would start a job whose limit is full. Jobs of a
-- paused queue or task are left out. So are jobs that no number of workers could take: workers serve the queue, but no
-- live worker of it, and none among the last thousand rows of workers, has announced the job's task. (If no worker
-- serves the queue, all jobs are counted: a fleet that was scaled to zero has to come back.) Names are found in the
-- workers' JSON as text, so that an unreadable row stops nothing.
CREATE FUNCTION outlast_wanted_v1(p_queue text) RETURNS integer
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_most CONSTANT integer := 10000;
    v_steps CONSTANT integer := 2000;  -- at most two for each task
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
            SELECT v_count + count(*) INTO v_count FROM (
                SELECT FROM (SELECT * FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle
                             ORDER BY s.task, s.queue, s.rank, s.turn LIMIT v_most) s
                CROSS JOIN LATERAL (
                    SELECT FROM outlast_jobs j
                    WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                      AND j.position IS NOT NULL
                    ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT v_most) j
                WHERE s.queue = p_queue AND s.task <> ALL (v_paused) AND (NOT v_is_served OR EXISTS (
                    SELECT FROM unnest(v_served) t (tasks) WHERE strpos(t.tasks, to_json(s.task)::text) > 0))
                LIMIT v_most - v_count) c;
        END IF;
        IF v_count < v_most THEN
            SELECT v_count + count(*) INTO v_count FROM (
                SELECT j.task FROM outlast_jobs j
                WHERE j.queue = p_queue AND j.state = 'queued' AND j.position IS NULL AND j.solo >= 0
                  AND j.run_at <= date_part('epoch', statement_timestamp())
                ORDER BY j.queue, j.run_at LIMIT v_most - v_count) c
            WHERE c.task <> ALL (v_paused) AND (NOT v_is_served OR EXISTS (
                SELECT FROM unnest(v_served) s (tasks) WHERE strpos(s.tasks, to_json(c.task)::text) > 0));
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
