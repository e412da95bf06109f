-- Lock jobs in those of these lanes that the request reads which stand below their floors, in this range
-- of positions; answers as outlast_next_v1. What is there is looked for without locks, one probe for
-- each lane: mostly nothing.
--
-- Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1; step 3 there says why it is right. Rows
-- that others hold are passed over (SKIP LOCKED), and a row that was claimed since the snapshot has lost
-- its position when it is looked at again.
CREATE FUNCTION outlast_below_v1(
    p_tasks text[], p_only text[],
    p_queues text[], p_lane_tasks text[], p_ranks smallint[], p_floors bigint[],
    p_from bigint, p_to bigint, p_not_queues text[], p_not_tenants text[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_lane record;
BEGIN
    FOR v_lane IN
        SELECT l.queue, l.task, l.rank, least(p_to, l.low) AS top, f.position AS first
        FROM unnest(p_queues, p_lane_tasks, p_ranks, p_floors) AS l (queue, task, rank, low)
        CROSS JOIN LATERAL (
            SELECT j.position FROM outlast_jobs j
            WHERE j.queue = l.queue AND j.task = l.task AND (-j.priority) = l.rank
              AND j.position >= p_from AND j.position < least(p_to, l.low)
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) f
        WHERE l.task = ANY (p_tasks) AND (cardinality(p_only) = 0 OR l.queue = ANY (p_only))
          AND l.queue <> ALL (p_not_queues)
        ORDER BY l.rank
    LOOP
        EXIT WHEN cardinality(ids) = p_limit;
        SELECT ids || array_agg(l.id), rows || array_agg(l.ctid),
               positions || array_agg(l.position), coalesce(bytes, 0) + coalesce(sum(l.bytes), 0)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = v_lane.queue AND j.task = v_lane.task
                AND (-j.priority) = v_lane.rank
                AND j.position >= v_lane.first AND j.position < v_lane.top
                AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
              ORDER BY j.task, j.queue, (-j.priority), j.position
              LIMIT p_limit - coalesce(cardinality(ids), 0)
              FOR NO KEY UPDATE SKIP LOCKED) l;
    END LOOP;
END
$$;
