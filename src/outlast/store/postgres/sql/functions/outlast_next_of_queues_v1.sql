-- Lock the next jobs in these lanes, one queue after the other, where some queue has several lanes with the
-- same rank, so that these must be merged; answers as outlast_next_v1. The lanes of a queue stand together.
-- The heads of its lanes are merged without locks, as many as wanted, and locked in the order of the line.
-- Where others hold some of those, each queue is read by itself (outlast_next_v1), so that too few come back
-- only where nothing else can be locked. What was locked before that is left as it was.
--
-- Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1; step 3 there says why it is right. Rows that
-- others hold are passed over (SKIP LOCKED), and a row that was claimed since the snapshot has lost its position
-- when it is looked at again. One statement for all queues: each costs more than a few probes.
CREATE FUNCTION outlast_next_of_queues_v1(
    p_queues text[], p_tasks text[], p_ranks smallint[], p_floors bigint[],
    p_not_tenants text[], p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT bytes bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_seen integer;
    v_first integer := 1; v_last integer;
    v_next record;
BEGIN
    IF p_queues[1] <> p_queues[cardinality(p_queues)] THEN
        WITH part AS MATERIALIZED (  -- the lanes of one queue: from the first to the last
            SELECT f.queue, f.n AS first,
                   lead(f.n, 1, cardinality(p_queues) + 1) OVER (ORDER BY f.n) - 1 AS last
            FROM (SELECT u.queue, u.n::integer AS n,
                         u.queue IS DISTINCT FROM lag(u.queue) OVER (ORDER BY u.n) AS begins
                  FROM unnest(p_queues) WITH ORDINALITY AS u (queue, n)) f
            WHERE f.begins
        ), candidate AS MATERIALIZED (
            SELECT c.id, c.position, row_number() OVER () AS n
            FROM (SELECT h.id, h.position
                  FROM part p
                  CROSS JOIN LATERAL (
                      SELECT j.id, j.position
                      FROM generate_series(p.first, p.last) AS l (n)
                      CROSS JOIN LATERAL (
                          SELECT j.id, j.position FROM outlast_jobs j
                          WHERE j.queue = p.queue AND j.task = p_tasks[l.n]
                            AND (-j.priority) = p_ranks[l.n] AND j.position >= p_floors[l.n]
                            AND (j.tenant IS NULL OR j.tenant <> ALL (p_not_tenants))
                          ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit) j
                      ORDER BY p_ranks[l.n], j.position LIMIT p_limit) h
                  LIMIT p_limit) c)
        SELECT array_agg(l.id ORDER BY l.n), array_agg(l.ctid ORDER BY l.n),
               array_agg(l.position ORDER BY l.n), sum(l.bytes), (SELECT count(*) FROM candidate)
        INTO ids, rows, positions, bytes, v_seen
        FROM (SELECT j.id, j.ctid, j.position, c.n,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM candidate c
              JOIN outlast_jobs j ON j.id = ANY (ARRAY[c.id]) AND coalesce(j.position, 0) = c.position
              FOR NO KEY UPDATE OF j SKIP LOCKED) l;
        IF v_seen < p_limit OR cardinality(ids) = p_limit THEN RETURN; END IF;  -- all, or as many as wanted
        ids := NULL; rows := NULL; positions := NULL; bytes := NULL;
    END IF;

    WHILE v_first <= cardinality(p_queues) AND coalesce(cardinality(ids), 0) < p_limit LOOP
        v_last := v_first;
        WHILE p_queues[v_last + 1] = p_queues[v_first] LOOP v_last := v_last + 1; END LOOP;
        v_next := outlast_next_v1(
            p_queues[v_first], p_tasks[v_first:v_last], p_ranks[v_first:v_last],
            p_floors[v_first:v_last], p_not_tenants, p_limit - coalesce(cardinality(ids), 0));
        ids := ids || v_next.ids; rows := rows || v_next.rows;
        positions := positions || v_next.positions;
        bytes := coalesce(bytes, 0) + coalesce(v_next.bytes, 0);
        v_first := v_last + 1;
    END LOOP;
END
$$;
