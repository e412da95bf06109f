-- The suspect of this kind that is next: by priority, then by the time since when it is due. Reads without
-- locks, to tell whether any is due.
CREATE FUNCTION outlast_first_suspect_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_not_queues text[], p_not_tenants text[],
    p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_id bigint;
BEGIN
    SELECT f.id INTO v_id
    FROM outlast_suspect_lanes_v1(p_solo, p_tasks, p_queues, p_not_queues) l
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.run_at FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
          AND j.queue = l.queue AND j.task = l.task AND j.run_at <= p_now
          AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
        ORDER BY j.priority DESC, j.run_at LIMIT 1) f
    ORDER BY f.priority DESC, f.run_at, f.id LIMIT 1;
    RETURN v_id;
END
$$;
