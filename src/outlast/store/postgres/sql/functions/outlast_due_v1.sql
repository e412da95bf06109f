-- Put due jobs into the line, the longest due first, at most 500. Returns their ids, and when the next job of these
-- queues (none given: of all queues) falls due within a minute; now, if more may be due. It moves jobs of all queues: a
-- job outside the line that no worker serves would look due to each idle worker again and again.
--
-- Rows that other sessions hold are skipped: those sessions put them into the line, or cancel them. A row that changed
-- since the snapshot is re-checked when it is locked.
CREATE FUNCTION outlast_due_v1(p_queues text[], p_now double precision, OUT ids bigint[], OUT next double precision)
LANGUAGE plpgsql
AS $$
DECLARE
    v_from double precision; v_due bigint[]; v_noted bigint[];
BEGIN
    next := outlast_first_due_v1(p_now);
    IF next IS NULL OR next > p_now AND cardinality(p_queues) = 0 THEN RETURN; END IF;
    v_from := outlast_read_from_v1('outlast_jobs_run_at'::regclass, p_now);
    SELECT array_agg(d.id ORDER BY d.run_at, d.id) INTO v_due
    FROM (SELECT j.id, j.run_at FROM outlast_jobs j
          WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
            AND j.run_at >= v_from AND j.run_at <= p_now
          ORDER BY j.run_at LIMIT 500
          FOR NO KEY UPDATE SKIP LOCKED) d;
    IF cardinality(v_due) >= 500 THEN
        next := p_now;
    ELSIF cardinality(p_queues) = 0 THEN
        SELECT j.run_at INTO next FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
          AND j.run_at > p_now AND j.run_at <= p_now + 60
        ORDER BY j.run_at LIMIT 1;
    ELSE
        SELECT min(f.run_at) INTO next
        FROM unnest(p_queues) AS q (queue)
        CROSS JOIN LATERAL (
            SELECT j.run_at FROM outlast_jobs j
            WHERE j.queue = q.queue AND j.state = 'queued' AND j.position IS NULL AND j.solo >= 0
              AND j.run_at > p_now AND j.run_at <= p_now + 60
            ORDER BY j.queue, j.run_at LIMIT 1) f;
    END IF;
    IF v_due IS NULL THEN RETURN; END IF;
    WITH numbered AS MATERIALIZED (
        SELECT d.id, nextval('outlast_position_seq') AS position FROM unnest(v_due) AS d (id)
    ), promoted AS (
        UPDATE outlast_jobs j SET position = n.position
        FROM numbered n WHERE j.id = ANY (ARRAY[n.id])
        RETURNING j.id, j.stream)
    SELECT array_agg(p.id), array_agg(p.id) FILTER (WHERE p.stream IS NOT NULL) INTO ids, v_noted FROM promoted p;
    IF v_noted IS NOT NULL THEN PERFORM outlast_note_v1(v_noted, p_ran => false, p_had_ended => false); END IF;
END
$$;
