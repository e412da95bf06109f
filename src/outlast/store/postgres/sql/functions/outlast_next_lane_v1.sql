-- Return the first lane of this task that has a job and lies behind (p_queue, p_rank) and before (p_end_queue, p_end_rank);
-- p_end_queue NULL: before the next task. low: the position of its first job. The rank of a lane is the negative of its
-- priority.
--
-- Each part of the gap is a range of one column, behind equal ones: a scan of the index stops at the end of such a range in
-- every version of PostgreSQL. Written as `(queue, rank) < (a, b)`, up to PostgreSQL 17 it does not stop at an end that
-- the second column decides, and reads the whole known lane behind the gap. So a probe costs a few descents of the index,
-- however many jobs wait. Callers inline it. Reads without locks.
CREATE FUNCTION outlast_next_lane_v1(p_task text, p_queue text, p_rank smallint, p_end_queue text, p_end_rank smallint)
RETURNS TABLE (queue text, rank smallint, low bigint)
LANGUAGE sql STABLE
AS $$
    SELECT * FROM (
        (SELECT j.queue, -j.priority AS rank, j.position AS low FROM outlast_jobs j
         WHERE j.position IS NOT NULL AND j.stream IS NULL AND j.task = p_task AND j.queue = p_queue
           AND (-j.priority) > p_rank
           AND (-j.priority) < CASE WHEN p_end_queue = p_queue THEN p_end_rank ELSE 32767::smallint END
         ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
        UNION ALL
        (SELECT j.queue, -j.priority, j.position FROM outlast_jobs j
         WHERE p_end_queue IS NULL
           AND j.position IS NOT NULL AND j.stream IS NULL AND j.task = p_task AND j.queue > p_queue
         ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
        UNION ALL
        (SELECT j.queue, -j.priority, j.position FROM outlast_jobs j
         WHERE p_end_queue IS NOT NULL
           AND j.position IS NOT NULL AND j.stream IS NULL AND j.task = p_task AND j.queue > p_queue AND j.queue < p_end_queue
         ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
        UNION ALL
        (SELECT j.queue, -j.priority, j.position FROM outlast_jobs j
         WHERE p_end_queue > p_queue COLLATE "C"
           AND j.position IS NOT NULL AND j.stream IS NULL AND j.task = p_task AND j.queue = p_end_queue
           AND (-j.priority) < p_end_rank
         ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)) n
    LIMIT 1
$$;
