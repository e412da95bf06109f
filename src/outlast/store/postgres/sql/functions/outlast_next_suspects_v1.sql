-- Lock the jobs that a claim request for suspects takes: the first due suspect, and those of its cohort that this
-- worker can run as well. Answers as outlast_claim_line_v1 does. With solo 2, only one job is taken, since it runs
-- alone. Nothing is taken that has expired, or whose bytes do not fit: what is taken is counted, and so must start.
--
-- Lanes are tried in the order of their first suspects, which is read without locks, until one has a suspect whose
-- row is free: a row that stays locked delays no other suspect. A row that has changed since it was read is
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
    v_first bigint;
    v_incident bigint;
    v_cohort bigint;
    v_taken record;
BEGIN
    permits := '{}';
    cut := false;
    started := clock_timestamp();
    FOR v_lane IN
        SELECT h.queue, h.task
        FROM outlast_suspect_heads_v1(p_solo, p_tasks, p_queues, p_not_queues, p_not_tenants, started) h
        WHERE h.id IS NOT NULL
        ORDER BY h.priority DESC, h.run_at, h.id
    LOOP
        SELECT j.id, j.incident, j.cohort INTO v_first, v_incident, v_cohort FROM outlast_jobs j
        WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = p_solo
          AND j.queue = v_lane.queue AND j.task = v_lane.task AND j.run_at <= started
          AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
          AND (j.expires_at IS NULL OR j.expires_at > started)
          AND (j.stream IS NULL OR outlast_has_room_v1(j.stream, extract(epoch FROM started)))
        ORDER BY j.priority DESC, j.run_at LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED;
        EXIT WHEN FOUND;
    END LOOP;
    IF v_first IS NULL THEN RETURN; END IF;
    ids := ARRAY[v_first];
    IF p_solo = 1 THEN
        ids := ids || ARRAY(
            SELECT j.id FROM outlast_jobs j
            WHERE j.incident = v_incident AND j.cohort = v_cohort AND j.id <> v_first
              AND j.state = 'queued' AND coalesce(j.solo, 0) = 1 AND j.run_at <= started
              AND j.task = ANY (p_tasks) AND j.queue <> ALL (p_not_queues)
              AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
              AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues)));
    END IF;
    SELECT array_agg(m.id ORDER BY m.n) FILTER (WHERE m.fits), coalesce(bool_or(NOT m.fits), false) INTO ids, cut
    FROM (SELECT m.id, m.n, sum(m.size) OVER read <= p_bytes_max OR p_is_first AND row_number() OVER read = 1 AS fits
          FROM (SELECT m.id, w.n, octet_length(m.args) + coalesce(octet_length(m.checkpoint), 0) AS size
                FROM (SELECT u.id, u.n FROM unnest(ids) WITH ORDINALITY AS u (id, n) LIMIT p_limit) w
                JOIN outlast_jobs m ON m.id = ANY (ARRAY[w.id]) AND m.state = 'queued' AND m.solo = p_solo
                    AND (m.expires_at IS NULL OR m.expires_at > started)
                FOR NO KEY UPDATE OF m SKIP LOCKED) m
          WINDOW read AS (ORDER BY m.n)) m;
    v_taken := outlast_take_suspects_v1(ids);
    permits := v_taken.permits;
    SELECT array_agg(m.id ORDER BY m.id), array_agg(m.ctid ORDER BY m.id), array_agg(NULL::bigint),
           sum(octet_length(m.args) + coalesce(octet_length(m.checkpoint), 0))
    INTO ids, rows, shown, bytes
    FROM unnest(v_taken.ids) AS u (id) LEFT JOIN outlast_jobs m ON m.id = ANY (ARRAY[u.id]);  -- LEFT: from the ids on
END
$$;
