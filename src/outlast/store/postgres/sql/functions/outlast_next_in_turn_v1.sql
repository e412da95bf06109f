-- Lock the next jobs in these lanes, one lane after the other, from their floors on; answers as
-- outlast_next_v1. That is the order of the line where no queue has two of them with the same rank.
--
-- Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1; step 3 there says why it is right. Rows
-- that others hold are passed over (SKIP LOCKED), and a row that was claimed since the snapshot has lost
-- its position when it is looked at again.
CREATE FUNCTION outlast_next_in_turn_v1(
    p_queues text[], p_tasks text[], p_ranks smallint[], p_floors bigint[],
    p_not_tenants text[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
BEGIN
    IF cardinality(p_tasks) = 1 THEN
        SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.position), sum(l.bytes)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = p_queues[1] AND j.task = p_tasks[1] AND (-j.priority) = p_ranks[1]
                AND j.position >= p_floors[1]
                AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
              ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) l;
        RETURN;
    END IF;
    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.position), sum(l.bytes)
    INTO ids, rows, positions, bytes
    FROM (SELECT c.id, c.ctid, c.position, c.bytes
          FROM unnest(p_queues, p_tasks, p_ranks, p_floors) AS t (queue, task, rank, low)
          CROSS JOIN LATERAL (
              SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = t.queue AND j.task = t.task AND (-j.priority) = t.rank
                AND j.position >= t.low
                AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
              ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) c
          LIMIT p_limit) l;
END
$$;
