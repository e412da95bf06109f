-- Lock those of the named jobs that wait in the line and that this request can take. Answers as outlast_lock_lanes_v1
-- does, except for the positions. Jobs in streams are passed over. A job is passed over while its queue's line holds a
-- job of higher priority and of these tasks: a message cannot jump that. (coalesce leaves the primary key as the only
-- way to an id.)
--
-- Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1. The named jobs are looked up
-- without locks. The lock then skips rows that other sessions hold (SKIP LOCKED); a row that was claimed since the
-- look no longer has a position when the lock re-checks it.
CREATE FUNCTION outlast_named_v1(
    p_ids bigint[], p_tasks text[], p_queues text[],
    p_not_queues text[], p_not_tenants text[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT j.id, j.queue, j.priority
        FROM unnest(p_ids) AS n (id)
        JOIN outlast_jobs j ON j.id = ANY (ARRAY[n.id]) AND coalesce(j.position, 0) > 0
         AND j.stream IS NULL
        WHERE j.task = ANY (p_tasks)
          AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues))
          AND j.queue <> ALL (p_not_queues)
          AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
    ), first AS MATERIALIZED (
        SELECT q.queue, max(h.priority) AS priority
        FROM (SELECT DISTINCT w.queue FROM wanted w) q
        CROSS JOIN unnest(p_tasks) AS t (task)
        CROSS JOIN LATERAL (
            SELECT j.priority FROM outlast_jobs j
            WHERE j.task = t.task AND j.queue = q.queue AND j.position IS NOT NULL AND j.stream IS NULL
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) h
        GROUP BY q.queue)
    SELECT array_agg(l.id ORDER BY l.priority DESC, l.position),
           array_agg(l.ctid ORDER BY l.priority DESC, l.position), sum(l.bytes)
    INTO ids, rows, bytes
    FROM (SELECT j.id, j.ctid, j.priority, j.position,
                 octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
          FROM wanted w
          JOIN first f ON f.queue = w.queue AND w.priority >= f.priority
          JOIN outlast_jobs j ON j.id = ANY (ARRAY[w.id]) AND coalesce(j.position, 0) > 0
          LIMIT p_limit
          FOR NO KEY UPDATE OF j SKIP LOCKED) l;
END
$$;
