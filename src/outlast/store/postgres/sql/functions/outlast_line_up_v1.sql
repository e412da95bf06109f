-- Append the lanes of the jobs among these that are in the line (outlast_add_lanes_v1). Every function except an
-- enqueue that puts jobs into the line calls this in the same transaction: their lanes may have been deleted. Returns
-- whether all of the lanes existed before.
CREATE FUNCTION outlast_line_up_v1(p_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN coalesce((
    SELECT outlast_add_lanes_v1(array_agg(l.task), array_agg(l.queue), array_agg(l.priority))
    FROM (SELECT DISTINCT j.task, j.queue, j.priority
          FROM unnest(p_ids) AS i (id)
          CROSS JOIN LATERAL (
              SELECT task, queue, priority, position, stream FROM outlast_jobs WHERE id = i.id OFFSET 0) j
          WHERE j.position IS NOT NULL AND j.stream IS NULL) l
    HAVING count(*) > 0), true);
END
$$;
