-- Read the existing lanes, if they differ from the caller's (lanes_seen). p_req returns as the caller's request with
-- all lanes in place of its own, each with its floor if it has one. fresh: the lanes, for the next exchange of the
-- caller. Reads without locks: the next exchange finds a lane that is committed meanwhile.
CREATE FUNCTION outlast_read_lanes_v1(INOUT p_req outlast_claim_request_v1, OUT fresh json)
LANGUAGE plpgsql
SET enable_hashjoin = on
AS $$
BEGIN
    SELECT coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.task), '{}'), coalesce(array_agg(l.rank), '{}'),
           coalesce(array_agg(coalesce(k.low, 0)), '{}'), coalesce(bit_xor(l.ids), 0), count(*) > count(DISTINCT (l.queue, l.rank)),
           json_build_array(coalesce(bit_xor(l.ids), 0), coalesce(json_agg(json_build_array(l.queue, l.task, l.rank)), '[]'))
    INTO p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors, p_req.lanes_seen, p_req.mixed, fresh
    FROM (SELECT e.task, e.queue, (-e.priority)::smallint AS rank, bit_xor(e.id) AS ids
          FROM outlast_lanes e GROUP BY e.task, e.queue, e.priority ORDER BY e.task, e.queue, -e.priority) l
    LEFT JOIN unnest(p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors) AS k (queue, task, rank, low)
        ON k.queue = l.queue AND k.task = l.task AND k.rank = l.rank;
END
$$;
