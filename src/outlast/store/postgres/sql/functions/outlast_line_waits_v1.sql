-- Return whether the line may have jobs for this request, or the caller wants a look below the floors: then streams do
-- not get all of its places. Without locks: a job that is committed meanwhile is left to the next claim.
CREATE FUNCTION outlast_line_waits_v1(p_req outlast_claim_request_v1, p_request integer) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN p_req.look_to IS NOT NULL OR EXISTS (
        SELECT FROM unnest(p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors)
                    AS k (queue, task, rank, low)
        CROSS JOIN LATERAL (
            SELECT FROM outlast_jobs j
            WHERE j.task = k.task AND j.queue = k.queue AND (-j.priority) = k.rank AND j.position >= k.low
              AND j.stream IS NULL
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) p
        WHERE k.task = ANY (p_req.tasks[p_request]::text[]));
END
$$;
