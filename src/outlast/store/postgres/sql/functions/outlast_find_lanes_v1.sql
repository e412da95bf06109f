-- Find the lanes (task, queue, rank) that a claim request reads next, queue by queue, beginning with the first queue
-- whose name is not before p_first. The rank of a lane is the negative of its priority.
--
-- It returns the unpaused lanes of the request's tasks and queues (p_only; empty: all queues): the lanes
-- that the caller knows and, with p_search, new lanes (fresh). With p_beside, known lanes of other queues are read as
-- well. mixed: some queue has two of these lanes with the same rank, whose jobs must be merged by position.
--
-- Runs inside outlast_claim_line_v1, under the planner settings of outlast_exchange_v1; its head argues why the line
-- may be read lane by lane and from floors. Reads without locks: a lane that appears meanwhile is found by the next
-- claim, and a lane that another claim empties meanwhile is found empty.
--
-- Without a search, the known lanes are the answer, and the queues before p_first come last. A search probes the gaps
-- between known lanes within the tasks of the request: one probe for each gap, and one more for each lane found. The
-- floor of a new lane is the position at which the probe found it, so that no later scan walks over the same dead
-- entries. There may be a hundred thousand queues, so a search stops after p_most new lanes of each task. Since the
-- order of a queue counts over the lanes of all tasks, only queues whose lanes are all known are returned; reached is
-- the first queue after them, where the next call continues. reached is NULL if the search has come to its end, which
-- is p_before (NULL: the last queue). If p_most lanes do not complete even one queue, the search is repeated for
-- eight times as many. A request that names its queues needs one call: one probe for each pair of queue and task.
--
-- The bounds of a gap are known lanes and the ends of an area; an area is one task from p_first on, or one task in
-- one queue. outlast_next_lane_v1 says why a probe of a gap costs the same however many jobs wait.
CREATE FUNCTION outlast_find_lanes_v1(
    p_req outlast_claim_request_v1, p_tasks text[], p_only text[], p_beside boolean, p_search boolean,
    p_first text, p_before text, p_most integer,
    OUT queues text[], OUT tasks text[], OUT ranks smallint[], OUT floors bigint[],
    OUT mixed boolean, OUT fresh json, OUT reached text)
LANGUAGE plpgsql
AS $$
DECLARE
    v_all boolean := cardinality(p_only) = 0;
    v_most integer := CASE WHEN v_all THEN p_most ELSE 256 END;  -- there are 201 ranks
    v_count integer;
BEGIN
    IF NOT p_search THEN
        SELECT array_agg(l.queue), array_agg(l.task), array_agg(l.rank), array_agg(l.low), bool_or(l.alike)
        INTO queues, tasks, ranks, floors, mixed
        FROM (SELECT k.queue, k.task, k.rank, k.low,
                     lag(k.queue) OVER turn = k.queue AND lag(k.rank) OVER turn = k.rank AS alike
              FROM unnest(p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors) AS k (queue, task, rank, low)
              WHERE k.task = ANY (p_tasks) AND (v_all OR k.queue = ANY (p_only)) AND k.queue <> ALL (p_req.not_queues)
              WINDOW turn AS (ORDER BY k.queue COLLATE "C" < p_first, k.queue COLLATE "C", k.rank)
              ORDER BY k.queue COLLATE "C" < p_first, k.queue COLLATE "C", k.rank) l;
        RETURN;
    END IF;
    LOOP
        WITH known AS MATERIALIZED (
            SELECT k.queue COLLATE "C" AS queue, k.task COLLATE "C" AS task, k.rank, k.low
            FROM unnest(p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors) AS k (queue, task, rank, low)
            WHERE k.task = ANY (p_tasks)
              AND CASE WHEN p_beside THEN true
                       WHEN NOT v_all THEN k.queue = ANY (p_only)
                       ELSE k.queue COLLATE "C" >= p_first
                           AND (p_before IS NULL OR k.queue COLLATE "C" < p_before) END
        ), wanted AS MATERIALIZED (
            SELECT DISTINCT u.task COLLATE "C" AS task FROM unnest(p_tasks) AS u (task)
        ), area AS MATERIALIZED (
            SELECT w.task, '' AS part, p_first COLLATE "C" AS queue, (-32768)::smallint AS rank,
                   p_before AS end_queue, (-32768)::smallint AS end_rank
            FROM wanted w WHERE v_all
            UNION ALL
            SELECT w.task, n.queue, n.queue, (-32768)::smallint, n.queue, 32767::smallint
            FROM wanted w CROSS JOIN (SELECT DISTINCT u.queue FROM unnest(p_only) AS u (queue)) n
        ), bound AS (
            SELECT a.task, a.part, a.queue, a.rank FROM area a
            UNION ALL
            SELECT k.task, CASE WHEN v_all THEN '' ELSE k.queue END, k.queue, k.rank FROM known k
        ), gap AS MATERIALIZED (
            SELECT b.task, b.part, b.queue, b.rank,
                   lead(b.queue) OVER next AS end_queue, lead(b.rank) OVER next AS end_rank
            FROM bound b
            WINDOW next AS (PARTITION BY b.task, b.part ORDER BY b.queue, b.rank)
        ), found AS MATERIALIZED (
            SELECT a.task, f.queue, f.rank, f.low
            FROM area a
            CROSS JOIN LATERAL (
                SELECT l.queue, l.rank, l.low
                FROM (SELECT g.queue, g.rank, coalesce(g.end_queue, a.end_queue) AS end_queue,
                             coalesce(g.end_rank, a.end_rank) AS end_rank
                      FROM gap g WHERE g.task = a.task AND g.part = a.part
                      ORDER BY g.queue, g.rank) g
                CROSS JOIN LATERAL (
                    WITH RECURSIVE lane (queue, rank, low) AS (
                        SELECT g.queue, g.rank, NULL::bigint
                        UNION ALL
                        SELECT n.queue, n.rank, n.low
                        FROM lane p
                        CROSS JOIN LATERAL outlast_next_lane_v1(a.task, p.queue, p.rank, g.end_queue, g.end_rank) n)
                    SELECT lane.queue, lane.rank, lane.low FROM lane WHERE lane.low IS NOT NULL) l
                LIMIT v_most) f
        ), cut AS MATERIALIZED (  -- from this queue on, more lanes may exist
            SELECT min(c.queue) AS queue
            FROM (SELECT max(f.queue) AS queue FROM found f
                  GROUP BY f.task HAVING v_all AND count(*) >= v_most) c
        ), lane AS MATERIALIZED (
            SELECT l.queue, l.task, l.rank, l.low, l.new,
                   lag(l.queue) OVER turn = l.queue AND lag(l.rank) OVER turn = l.rank AS alike
            FROM (SELECT k.queue, k.task, k.rank, k.low, false AS new FROM known k
                  UNION ALL
                  SELECT f.queue, f.task, f.rank, f.low, true FROM found f) l
            CROSS JOIN cut c WHERE c.queue IS NULL OR l.queue < c.queue
            WINDOW turn AS (ORDER BY l.queue < p_first, l.queue, l.rank, l.task)
            ORDER BY l.queue < p_first, l.queue, l.rank, l.task)
        SELECT array_agg(l.queue), array_agg(l.task), array_agg(l.rank), array_agg(l.low), bool_or(l.alike),
               json_agg(json_build_array(l.queue, l.task, l.rank, l.low)) FILTER (WHERE l.new),
               (SELECT c.queue FROM cut c), (SELECT count(*) FROM lane)
        INTO queues, tasks, ranks, floors, mixed, fresh, reached, v_count
        FROM lane l WHERE l.queue <> ALL (p_req.not_queues);
        EXIT WHEN reached IS NULL OR v_count > 0;
        v_most := 8 * v_most;
    END LOOP;
END
$$;
