-- Clear the suspects of these incidents: the queued ones keep their places, and run beside others. Returns the suspects
-- that can run now. A locked suspect is being claimed, cancelled or cleared at this moment: it is left alone, and at
-- worst runs alone once more.
CREATE FUNCTION outlast_clear_v1(p_incidents bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    WITH innocent AS MATERIALIZED (
        SELECT j.id
        FROM unnest(p_incidents) AS i (incident)
        CROSS JOIN LATERAL (
            SELECT s.id FROM outlast_jobs s
            WHERE s.incident = i.incident AND s.state = 'queued'
              AND coalesce(s.solo, 0) = 1  -- coalesce: keeps the index of all suspects out of the plan
            FOR NO KEY UPDATE SKIP LOCKED) j
    ), cleared AS (
        UPDATE outlast_jobs j SET solo = 0, incident = NULL
        FROM innocent n WHERE j.id = ANY (ARRAY[n.id])
        RETURNING j.id, j.position)
    SELECT array_agg(c.id) INTO v_ids FROM cleared c WHERE c.position IS NOT NULL;
    RETURN v_ids;
END
$$;
