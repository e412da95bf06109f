-- Find the lanes (queue, task) that have suspects of this kind, among these tasks and queues (no queues given: all),
-- and the next suspect of each: by priority, then by how long it has been due. id is NULL if no suspect of the lane is
-- due and has the permits that it needs. This takes a probe or two for each lane, however many suspects wait. Reads
-- without locks: the caller that takes a suspect locks and re-checks it.
CREATE FUNCTION outlast_suspect_heads_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_not_queues text[], p_not_tenants text[], p_now timestamptz)
RETURNS TABLE (queue text, task text, id bigint, priority smallint, run_at timestamptz)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE lane (queue, task) AS (
        (SELECT j.queue, j.task FROM outlast_jobs j
         WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
         ORDER BY j.solo, j.queue, j.task LIMIT 1)
        UNION ALL
        SELECT n.queue, n.task
        FROM lane l
        CROSS JOIN LATERAL (
            SELECT j.queue, j.task FROM outlast_jobs j
            WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
              AND (j.queue, j.task) > (l.queue, l.task)
            ORDER BY j.solo, j.queue, j.task LIMIT 1) n)
    SELECT l.queue, l.task, f.id, f.priority, f.run_at
    FROM lane l
    LEFT JOIN LATERAL (
        SELECT j.id, j.priority, j.run_at FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
          AND j.queue = l.queue AND j.task = l.task AND j.run_at <= p_now
          AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
          AND (j.stream IS NULL OR outlast_has_room_v1(j.stream, extract(epoch FROM p_now)))
        ORDER BY j.priority DESC, j.run_at LIMIT 1) f ON true
    WHERE l.task = ANY (p_tasks) AND (cardinality(p_queues) = 0 OR l.queue = ANY (p_queues))
      AND l.queue <> ALL (p_not_queues);
END
$$;
