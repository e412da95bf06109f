-- Lanes (queue, task) that have suspects of this kind, among these tasks and queues (none: all):
-- one probe per lane, however many suspects. Reads without locks; runs inside outlast_claim_v1, which
-- says under 6 which suspects run.
CREATE FUNCTION outlast_suspect_lanes_v1(p_solo integer, p_tasks text[], p_queues text[], p_not_queues text[])
RETURNS TABLE (queue text, task text)
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
    SELECT l.queue, l.task FROM lane l
    WHERE l.task = ANY (p_tasks) AND (cardinality(p_queues) = 0 OR l.queue = ANY (p_queues))
      AND l.queue <> ALL (p_not_queues);
END
$$;
