-- Wake listeners for those of these jobs that can run now: one notification for each queue, sent by the commit. Its
-- text is jobs:POSITION:COUNT:QUEUE: the lowest of their positions, which identifies the wake-up (a job gets a new
-- position each time it joins the line), and the number of jobs. Not each worker may take
-- a suspect now, so queue:QUEUE makes every listener look for one. It reads without locks and is a hint: a job that is claimed meanwhile is announced needlessly. A
-- payload is limited to 8000 bytes; a cut one is still a hint. (OFFSET 0 keeps the position out of the choice of the
-- index: a plan was seen that read the whole line to find a few ids.)
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
