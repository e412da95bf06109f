-- Wake listeners for those of these streams that are still open: one notification for each queue, in the form of
-- outlast_notify_v1, with the lowest of the positions of their first jobs. It reads without locks and is a hint: a job
-- that is claimed meanwhile is announced needlessly.
CREATE FUNCTION outlast_notify_streams_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM outlast_tell_v1('jobs:' || q.first || ':' || q.count || ':' || left(q.queue, 1000))
    FROM (SELECT s.queue, min(j.position) AS first, count(*)
          FROM unnest(p_ids) AS u (id)
          JOIN outlast_streams s ON s.id = ANY (ARRAY[u.id]) AND coalesce(s.blocked, 0) = 0 AND NOT coalesce(s.idle, false)
          CROSS JOIN LATERAL (
              SELECT j.position FROM outlast_jobs j
              WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
                AND j.position IS NOT NULL
              ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) j
          GROUP BY s.queue) q;
END
$$;
