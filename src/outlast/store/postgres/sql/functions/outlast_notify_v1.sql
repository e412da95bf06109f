-- Wake listeners for the jobs among these that can run now: one notification for each queue, sent by the commit. Its
-- text is jobs:POSITION:COUNT:QUEUE: the lowest of their positions, which identifies the wake-up, and the number of
-- jobs. queue:QUEUE makes every listener look for a suspect, which not every worker may take. The notification is a
-- hint, from a read without locks: a job that is claimed meanwhile is announced needlessly, and a payload is cut at
-- 8000 bytes. (OFFSET 0 keeps the position out of the choice of the index: a plan was seen that read the whole line to
-- find a few ids.)
CREATE FUNCTION outlast_notify_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify(outlast_channel_v1(), CASE WHEN q.suspects THEN 'queue:'
                                      ELSE 'jobs:' || q.first || ':' || q.count || ':' END || left(q.queue, 1000))
    FROM (SELECT j.queue, min(j.position) AS first, count(*), bool_or(j.solo > 0) AS suspects
          FROM unnest(p_ids) AS i (id)
          CROSS JOIN LATERAL (
              SELECT queue, position, solo FROM outlast_jobs WHERE id = i.id OFFSET 0) j
          WHERE j.position IS NOT NULL
          GROUP BY j.queue) q;
END
$$;
