-- Put due jobs into the line, those first that are due for longest; returns their ids, and when the next one
-- of these queues (none: of all) falls due, or may. At most 500 per call; where more of them may be due, the next one is said to be due now. Jobs of all
-- queues, also of those that the caller does not serve: the line is where jobs wait for a worker that serves them,
-- and one that no worker serves would look due to each idle worker again and again.
--
-- Rows that others hold are passed over (SKIP LOCKED): another exchange puts them into the line, or they
-- are being cancelled. One that changed since the snapshot is looked at again when it is locked, and is
-- left alone if it is no longer due or already has a position. p_from: outlast_head_v1; p_first: the first live entry
-- from there on. The next one is read under the rule of outlast_dear_v1, of all queues or of each of these.
CREATE FUNCTION outlast_due_v1(
    p_queues text[], p_from timestamptz, p_first timestamptz, p_now timestamptz, OUT ids bigint[], OUT next timestamptz)
LANGUAGE plpgsql
AS $$
DECLARE
    v_due bigint[];
    v_run_at oid := 'outlast_jobs_run_at'::regclass; v_read bigint;
    v_soon timestamptz := p_now + interval '5 seconds';
    v_ahead timestamptz := outlast_ahead_v1(v_run_at, p_now, '');
BEGIN
    SELECT array_agg(d.id ORDER BY d.run_at, d.id) INTO v_due
    FROM (SELECT j.id, j.run_at FROM outlast_jobs j
          WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
            AND j.run_at >= p_from AND j.run_at <= p_now
          ORDER BY j.run_at LIMIT 500
          FOR NO KEY UPDATE SKIP LOCKED) d;
    IF cardinality(p_queues) = 0 THEN
        v_read := pg_stat_get_xact_tuples_returned(v_run_at);
        SELECT coalesce(
            (SELECT j.run_at FROM outlast_jobs j
             WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0
               AND j.run_at > p_now AND j.run_at <= v_soon
             ORDER BY j.run_at LIMIT 1),
            (SELECT j.run_at FROM outlast_jobs j
             WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) = 0 AND j.run_at >= v_ahead
             ORDER BY j.run_at LIMIT 1))
        INTO next;
        IF pg_stat_get_xact_tuples_returned(v_run_at) - v_read > 1000 THEN
            PERFORM outlast_dear_v1(v_run_at, p_from, p_first, p_now, v_read,
                CASE WHEN next <= v_soon THEN '-infinity' ELSE coalesce(next, 'infinity') END);
        END IF;
        IF v_ahead > v_soon THEN next := least(next, v_soon); END IF;
    ELSE
        SELECT min(outlast_first_due_v1(q.queue, p_now)) INTO next FROM unnest(p_queues) AS q (queue);
    END IF;
    IF v_due IS NULL THEN RETURN; END IF;
    IF cardinality(v_due) >= 500 THEN next := p_now; END IF;
    WITH numbered AS MATERIALIZED (
        SELECT d.id, nextval('outlast_position_seq') AS position FROM unnest(v_due) AS d (id)
    ), promoted AS (
        UPDATE outlast_jobs j SET position = n.position
        FROM numbered n WHERE j.id = ANY (ARRAY[n.id])
        RETURNING j.id)
    SELECT array_agg(id) INTO ids FROM promoted;
END
$$;
