-- Clear the suspects of these incidents, which are innocent: the queued ones join the line, or wait for their run_at
-- outside it. Returns those that can run now. A locked suspect is just being claimed, cancelled or cleared: it is
-- left alone, and at worst runs alone once more.
CREATE FUNCTION outlast_clear_v1(p_incidents bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_ids bigint[];
BEGIN
    WITH innocent AS MATERIALIZED (
        SELECT j.id, j.run_at <= v_now AS due
        FROM unnest(p_incidents) AS i (incident)
        CROSS JOIN LATERAL (
            SELECT s.id, s.run_at FROM outlast_jobs s
            WHERE s.incident = i.incident AND s.state = 'queued'
              AND coalesce(s.solo, 0) = 1  -- coalesce: keeps the index of all suspects out of the plan
            FOR NO KEY UPDATE SKIP LOCKED) j
    ), numbered AS MATERIALIZED (
        SELECT s.id, s.due, CASE WHEN s.due THEN nextval('outlast_position_seq') END AS position
        FROM (SELECT id, due FROM innocent ORDER BY id) s
    ), cleared AS (
        UPDATE outlast_jobs j
        SET solo = 0, incident = NULL, position = n.position
        FROM numbered n WHERE j.id = ANY (ARRAY[n.id])
        RETURNING j.id, n.due)
    SELECT array_agg(c.id) INTO v_ids FROM cleared c WHERE c.due;
    PERFORM outlast_note_v1(v_ids, p_ran => false, p_had_ended => false);
    RETURN v_ids;
END
$$;
