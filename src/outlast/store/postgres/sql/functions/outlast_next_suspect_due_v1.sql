-- Return when the next suspect of this kind falls due. If some lane has due ones (the first 100 are looked at) and all
-- wait for permits, that is in a second. Reads without locks; the worker looks again at that time.
CREATE FUNCTION outlast_next_suspect_due_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_not_queues text[], p_not_tenants text[], p_now timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_due timestamptz;
BEGIN
    SELECT min(j.run_at) INTO v_due
    FROM outlast_suspect_heads_v1(p_solo, p_tasks, p_queues, p_not_queues, p_not_tenants, p_now) l
    JOIN outlast_jobs j
      ON j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
     AND j.queue = l.queue AND j.task = l.task AND j.run_at > p_now;
    IF EXISTS (
        SELECT FROM outlast_suspect_heads_v1(p_solo, p_tasks, p_queues, p_not_queues, p_not_tenants, p_now) l
        CROSS JOIN LATERAL (
            SELECT j.stream, j.tenant FROM outlast_jobs j
            WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
              AND j.queue = l.queue AND j.task = l.task AND j.run_at <= p_now
            ORDER BY j.priority DESC, j.run_at LIMIT 100) j
        WHERE l.id IS NULL AND j.stream IS NOT NULL AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants)))
    THEN
        v_due := least(v_due, p_now + interval '1 second');
    END IF;
    RETURN v_due;
END
$$;
