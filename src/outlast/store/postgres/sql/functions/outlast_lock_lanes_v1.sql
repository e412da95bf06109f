-- Lock the next jobs of these lanes that a request (its place in p_req: p_request) may take: queue by queue, beginning
-- with the queue whose turn it is, and within a queue by rank (outlast_claim_line_v1).
--
-- Returns the ids, the places of the rows (ctid) and the positions of the jobs, in the order of the line, and the bytes
-- of their arguments and checkpoints. (octet_length fetches no value that is stored out of line.) Each lane is read
-- from its floor on; with p_from, from p_from to before p_to and before its floor.
--
-- p_mixed: some queue has two lanes of the same rank, whose jobs are merged by position. The heads of those lanes are
-- merged without locks, three times as many jobs as wanted, because other sessions may hold the first ones; then as
-- many as wanted are locked. If that yields too few and there may be more, the second statement reads lane after lane.
-- So a claim returns too few jobs only if it could lock no others, which matters because a worker that gets nothing
-- rests for a while. (coalesce leaves the primary key as the only way to an id, under any statistics: 0095.)
--
-- Suspects are passed over. A suspect that is cleared below its lane's floor is found by the next look there.
--
-- Runs inside outlast_exchange_v1, under its planner settings; the exchange argues why this is right against other
-- claims.
CREATE FUNCTION outlast_lock_lanes_v1(
    p_req outlast_claim_request_v1, p_request integer,
    p_queues text[], p_tasks text[], p_ranks smallint[], p_floors bigint[], p_mixed boolean,
    p_from bigint, p_to bigint, p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT shown bigint[], OUT bytes bigint,
    OUT started double precision)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_most integer; v_seen integer;
    v_asked text[] := p_req.tasks[p_request]::text[];
    v_first text := p_req.firsts[p_request];
BEGIN
    IF p_queues IS NULL THEN RETURN; END IF;
    IF p_mixed THEN
        v_most := 3 * p_limit;
        WITH part AS MATERIALIZED (  -- the lanes of one queue are adjacent
            SELECT min(l.n)::integer AS first, max(l.n)::integer AS last
            FROM unnest(p_queues) WITH ORDINALITY AS l (queue, n) GROUP BY l.queue ORDER BY 1
        ), candidate AS MATERIALIZED (
            SELECT c.id, c.position, row_number() OVER () AS n
            FROM (SELECT h.id, h.position
                  FROM part p
                  CROSS JOIN LATERAL (
                      SELECT j.id, j.position
                      FROM generate_series(p.first, p.last) AS l (n)
                      CROSS JOIN LATERAL (
                          SELECT j.id, j.position FROM outlast_jobs j
                          WHERE j.queue = p_queues[l.n] AND j.task = p_tasks[l.n] AND (-j.priority) = p_ranks[l.n]
                            AND j.stream IS NULL AND j.solo <= 0
                            AND j.position >= coalesce(p_from, p_floors[l.n])
                            AND j.position < CASE WHEN p_from IS NULL THEN 9223372036854775807
                                                  ELSE least(p_to, p_floors[l.n]) END
                            AND (p_from IS NULL OR p_floors[l.n] > p_from)
                            AND (j.tenant IS NULL OR j.tenant <> ALL (p_req.not_tenants))
                          ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT v_most) j
                      ORDER BY p_ranks[l.n], j.position LIMIT v_most) h
                  LIMIT v_most) c)
        SELECT array_agg(l.id ORDER BY l.n), array_agg(l.ctid ORDER BY l.n),
               array_agg(l.position ORDER BY l.n), sum(l.bytes), (SELECT count(*) FROM candidate)
        INTO ids, rows, positions, bytes, v_seen
        FROM (SELECT j.id, j.ctid, j.position, c.n,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM candidate c
              JOIN outlast_jobs j ON j.id = ANY (ARRAY[c.id]) AND coalesce(j.position, 0) = c.position
              ORDER BY c.n LIMIT p_limit
              FOR NO KEY UPDATE OF j SKIP LOCKED) l;
        IF v_seen < v_most OR cardinality(ids) = p_limit THEN RETURN; END IF;
    END IF;
    SELECT ids || array_agg(l.id), rows || array_agg(l.ctid), positions || array_agg(l.position),
           coalesce(bytes, 0) + coalesce(sum(l.bytes), 0), date_part('epoch', clock_timestamp())
    INTO ids, rows, positions, bytes, started
    FROM (SELECT c.id, c.ctid, c.position, c.bytes
          FROM (SELECT u.queue, u.task, u.rank, u.low
                FROM unnest(p_queues, p_tasks, p_ranks, p_floors) AS u (queue, task, rank, low)
                WHERE (p_from IS NULL OR u.low > p_from)
                  AND u.task = ANY (v_asked) AND (p_req.queues = '{}' OR u.queue = ANY (p_req.queues))
                  AND u.queue <> ALL (p_req.not_queues)
                ORDER BY u.queue COLLATE "C" < v_first, u.queue COLLATE "C", u.rank, u.task COLLATE "C") t
          CROSS JOIN LATERAL (
              SELECT j.id, j.ctid, j.position,
                     octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.queue = t.queue AND j.task = t.task AND (-j.priority) = t.rank AND j.stream IS NULL AND j.solo <= 0
                AND j.position >= coalesce(p_from, t.low)
                AND j.position < CASE WHEN p_from IS NULL THEN 9223372036854775807 ELSE least(p_to, t.low) END
                AND (j.tenant IS NULL OR j.tenant <> ALL (p_req.not_tenants))
                AND j.position <> ALL (coalesce(positions, '{}'))  -- SKIP LOCKED does not skip locks of this session
              ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) c
          LIMIT p_limit - coalesce(cardinality(ids), 0)) l;
    shown := positions;
END
$$;
