-- Find the lanes that serve a request (its place in p_req: p_request), and lock the jobs that it takes next.
-- outlast_exchange_v1 calls this where its single statement does not suffice: two lanes of a queue have the same rank
-- (mixed), or the caller wants a look below the floors as well.
--
-- Lanes: the line is read lane by lane (task, queue, priority), and only in lanes of the request's tasks, so that jobs
-- of unknown tasks slow no claim. Queues take turns: a claim starts behind the queue from which the last claim for the
-- same tasks took a job (firsts, one for each request), so that a long queue starves no other.
--
-- Floors: the caller passes each lane with a floor, the position below which it has found nothing for a while. Rows
-- that have left the line stay in the index until vacuum removes them, which it cannot do while an older transaction is
-- open. An index scan from the head of a lane walks over all of them; a scan from the floor does not. A job lies below
-- its floor if its transaction stayed open while later jobs were claimed. It is found by a look below the floors, for
-- which the caller asks once a second, as a range of positions (look_from, look_to): the scan meets no more dead
-- entries than the range has positions. A floor that is too high delays a job and never loses it, since whether a job
-- can be claimed depends on its row alone. late: how many jobs such a look has found.
CREATE FUNCTION outlast_claim_line_v1(
    p_req outlast_claim_request_v1, p_request integer, p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT shown bigint[], OUT bytes bigint,
    OUT started double precision, OUT late integer)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_lanes record; v_jobs record;
BEGIN
    SELECT array_agg(l.queue) AS queues, array_agg(l.task) AS tasks, array_agg(l.rank) AS ranks, array_agg(l.low) AS floors,
           bool_or(l.alike) AS mixed
    INTO v_lanes
    FROM (SELECT k.queue, k.task, k.rank, k.low,
                 lag(k.queue) OVER turn = k.queue AND lag(k.rank) OVER turn = k.rank AS alike
          FROM unnest(p_req.lane_queues, p_req.lane_tasks, p_req.lane_ranks, p_req.lane_floors) AS k (queue, task, rank, low)
          WHERE k.task = ANY (p_req.tasks[p_request]::text[]) AND (p_req.queues = '{}' OR k.queue = ANY (p_req.queues))
            AND k.queue <> ALL (p_req.not_queues)
          WINDOW turn AS (ORDER BY k.queue COLLATE "C" < p_req.firsts[p_request], k.queue COLLATE "C", k.rank)
          ORDER BY k.queue COLLATE "C" < p_req.firsts[p_request], k.queue COLLATE "C", k.rank) l;
    IF p_req.look_to IS NOT NULL THEN
        v_jobs := outlast_lock_lanes_v1(
            p_req, p_request, v_lanes.queues, v_lanes.tasks, v_lanes.ranks, v_lanes.floors, v_lanes.mixed,
            p_req.look_from, p_req.look_to, p_limit);
        ids := v_jobs.ids;
        rows := v_jobs.rows;
        positions := v_jobs.positions;
        bytes := v_jobs.bytes;
        late := coalesce(cardinality(ids), 0);
    END IF;
    IF coalesce(late, 0) < p_limit THEN
        v_jobs := outlast_lock_lanes_v1(
            p_req, p_request, v_lanes.queues, v_lanes.tasks, v_lanes.ranks, v_lanes.floors, v_lanes.mixed,
            NULL, NULL, p_limit - coalesce(late, 0));
        ids := ids || v_jobs.ids;
        rows := rows || v_jobs.rows;
        positions := positions || v_jobs.positions;
        bytes := coalesce(bytes, 0) + coalesce(v_jobs.bytes, 0);
    END IF;
    shown := positions;
    started := date_part('epoch', clock_timestamp());
END
$$;
