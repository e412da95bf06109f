-- Lock the next jobs of a queue in these lanes of it, from their floors on; returns their ids, where
-- their rows are and their positions, in the order of the line, and how many bytes of arguments and
-- checkpoints they have. (octet_length reads what is in the row: a value that is stored elsewhere has
-- its length beside its address, and is neither fetched nor decompressed.) The heads of the lanes are
-- merged without locks, four times as many as wanted, since others may hold the first; then as many as
-- wanted are locked. Where others hold some of those, so that more are still wanted, the lanes are read
-- one after the other as if each were the only one, so that too few come back only where nothing else
-- can be locked: a worker that gets nothing rests for a while. (coalesce leaves the primary key as the
-- only way to an id, and the order that is asked for leaves the line, under any statistics.)
--
-- Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1; step 3 there says why it is right. Rows
-- that others hold are passed over (SKIP LOCKED), and a row that was claimed since the snapshot has lost
-- its position when it is looked at again.
CREATE FUNCTION outlast_next_v1(
    p_queue text, p_tasks text[], p_ranks smallint[], p_floors bigint[],
    p_not_tenants text[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_seen integer;
    v_lane record;
BEGIN
    WITH candidate AS MATERIALIZED (
        SELECT c.id, c.position
        FROM unnest(p_tasks, p_ranks, p_floors) AS t (task, rank, low)
        CROSS JOIN LATERAL (
            SELECT j.id, j.position FROM outlast_jobs j
            WHERE j.queue = p_queue AND j.task = t.task AND (-j.priority) = t.rank
              AND j.position >= t.low
              AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 4 * p_limit) c
        ORDER BY t.rank, c.position LIMIT 4 * p_limit)
    SELECT array_agg(l.id ORDER BY l.priority DESC, l.position),
           array_agg(l.ctid ORDER BY l.priority DESC, l.position),
           array_agg(l.position ORDER BY l.priority DESC, l.position),
           sum(l.bytes), (SELECT count(*) FROM candidate)
    INTO ids, rows, positions, bytes, v_seen
    FROM (SELECT j.id, j.ctid, j.priority, j.position,
                 octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
          FROM candidate c
          JOIN outlast_jobs j ON j.id = ANY (ARRAY[c.id]) AND coalesce(j.position, 0) = c.position
          ORDER BY j.priority DESC, j.position LIMIT p_limit
          FOR NO KEY UPDATE OF j SKIP LOCKED) l;
    IF v_seen < 4 * p_limit THEN RETURN; END IF;  -- that was all of it

    FOR v_lane IN
        SELECT t.task, t.rank, t.low FROM unnest(p_tasks, p_ranks, p_floors) AS t (task, rank, low)
        ORDER BY t.rank
    LOOP
        EXIT WHEN cardinality(ids) = p_limit;
        SELECT ids || array_agg(l.id), rows || array_agg(l.ctid),
               positions || array_agg(l.position), coalesce(bytes, 0) + coalesce(sum(l.bytes), 0)
        INTO ids, rows, positions, bytes
        FROM (SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = p_queue AND j.task = v_lane.task AND (-j.priority) = v_lane.rank
                AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                AND j.position >= v_lane.low AND j.position <> ALL (coalesce(positions, '{}'))
              ORDER BY j.task, j.queue, (-j.priority), j.position
              LIMIT p_limit - coalesce(cardinality(ids), 0)
              FOR NO KEY UPDATE SKIP LOCKED) l;
    END LOOP;
END
$$;
