-- Delete rows more than a day old whose lane has no jobs, and all but the newest of several rows of a lane. Append
-- lanes that have jobs but no row: of jobs that came by COPY or the like, that a person has changed, or whose lane was
-- lost by a failover while a client relied on it.
--
-- Why no job is left behind in a lane that is forgotten: a transaction that puts a job into a line has added the lane
-- itself, or has seen a row that was at most an hour and some minutes old (outlast_add_lanes_v1). So when that row is
-- deleted, the transaction is over, or has been open for most of a day, and the next call finds its job. Nothing waits
-- here: rows that another session deletes at the same time are passed over.
CREATE FUNCTION outlast_thin_lanes_v1() RETURNS void
LANGUAGE plpgsql
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM outlast_lanes d USING (
        SELECT l.id FROM outlast_lanes l
        WHERE EXISTS (SELECT FROM outlast_lanes n
                      WHERE n.task = l.task AND n.queue = l.queue AND n.priority = l.priority
                        AND (n.added_at, n.id) > (l.added_at, l.id))
           OR l.added_at < date_part('epoch', statement_timestamp()) - 86400
              AND NOT EXISTS (SELECT FROM outlast_jobs j
                              WHERE j.task = l.task AND j.queue = l.queue AND (-j.priority) = -l.priority
                                AND j.position IS NOT NULL AND j.stream IS NULL)
        FOR UPDATE SKIP LOCKED) o
    WHERE d.id = o.id;
    PERFORM outlast_add_lanes_v1(array_agg(m.task), array_agg(m.queue), array_agg(m.priority))
    FROM (WITH RECURSIVE lane (task, queue, rank) AS (
              (SELECT j.task, j.queue, -j.priority FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NULL
               ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
              UNION ALL
              SELECT n.task, n.queue, n.rank
              FROM lane l
              CROSS JOIN LATERAL (
                  SELECT j.task, j.queue, -j.priority AS rank FROM outlast_jobs j
                  WHERE j.position IS NOT NULL AND j.stream IS NULL
                    AND (j.task, j.queue, (-j.priority)) > (l.task, l.queue, l.rank)
                  ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n)
          SELECT lane.task, lane.queue, (-lane.rank)::smallint AS priority FROM lane
          WHERE NOT EXISTS (SELECT FROM outlast_lanes k
                            WHERE k.task = lane.task AND k.queue = lane.queue AND k.priority = -lane.rank)) m
    HAVING count(*) > 0;
END
$$;
