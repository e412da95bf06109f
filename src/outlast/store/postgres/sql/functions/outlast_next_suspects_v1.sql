-- Lock the jobs that a claim request for suspects takes: the due ones that are next by priority and by how long they
-- have been due. Answers as outlast_claim_line_v1 does. Nothing is taken that has expired, or whose bytes do not fit:
-- what is taken is counted, and so must start.
--
-- Lanes are read in the order of their first suspects, which are read without locks, until there are enough suspects
-- whose rows are free: a row that stays locked delays no other suspect. A row that has changed since it was read is
-- re-checked when it is locked.
--
-- A suspect under limits is passed over while one of its permits has no room, and gives way to the others; those that
-- are taken are counted as started (outlast_take_suspects_v1).
CREATE FUNCTION outlast_next_suspects_v1(
    p_solo integer, p_tasks text[], p_queues text[], p_not_queues text[],
    p_not_tenants text[], p_limit integer, p_bytes_max bigint, p_is_first boolean,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT shown bigint[], OUT bytes bigint,
    OUT started timestamptz, OUT cut boolean, OUT permits bigint[])
LANGUAGE plpgsql
AS $$
DECLARE
    v_lane record;
    v_taken record;
BEGIN
    IF p_solo = 2 THEN p_limit := least(p_limit, 1); END IF;  -- it runs alone
    permits := '{}';
    ids := '{}';
    cut := false;
    started := clock_timestamp();
    FOR v_lane IN
        SELECT h.queue, h.task
        FROM outlast_suspect_heads_v1(p_solo, p_tasks, p_queues, p_not_queues, p_not_tenants, started) h
        WHERE h.id IS NOT NULL
        ORDER BY h.priority DESC, h.run_at, h.id
    LOOP
        ids := ids || ARRAY(
            SELECT j.id FROM outlast_jobs j
            WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
              AND j.queue = v_lane.queue AND j.task = v_lane.task AND j.run_at <= started
              AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
              AND (j.expires_at IS NULL OR j.expires_at > started)
              AND (j.stream IS NULL OR outlast_has_room_v1(j.stream, extract(epoch FROM started)))
            ORDER BY j.priority DESC, j.run_at LIMIT p_limit - cardinality(ids)
            FOR NO KEY UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(ids) >= p_limit;
    END LOOP;
    IF ids = '{}' THEN
        ids := NULL;
        RETURN;
    END IF;
    SELECT array_agg(m.id ORDER BY m.n) FILTER (WHERE m.fits), coalesce(bool_or(NOT m.fits), false) INTO ids, cut
    FROM (SELECT m.id, m.n, sum(m.size) OVER read <= p_bytes_max OR p_is_first AND row_number() OVER read = 1 AS fits
          FROM (SELECT m.id, u.n, octet_length(m.args) + coalesce(octet_length(m.checkpoint), 0) AS size
                FROM unnest(ids) WITH ORDINALITY AS u (id, n) JOIN outlast_jobs m ON m.id = ANY (ARRAY[u.id])) m
          WINDOW read AS (ORDER BY m.n)) m;
    v_taken := outlast_take_suspects_v1(ids);
    permits := v_taken.permits;
    SELECT array_agg(m.id ORDER BY m.id), array_agg(m.ctid ORDER BY m.id), array_agg(NULL::bigint),
           sum(octet_length(m.args) + coalesce(octet_length(m.checkpoint), 0))
    INTO ids, rows, shown, bytes
    FROM unnest(v_taken.ids) AS u (id) LEFT JOIN outlast_jobs m ON m.id = ANY (ARRAY[u.id]);  -- LEFT: from the ids on
END
$$;
