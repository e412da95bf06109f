-- Wake listeners for those of these jobs that can run now: one notification per queue, sent by the commit.
-- It reads without locks and is a hint: a job that is claimed meanwhile is announced needlessly. A payload
-- is limited to 8000 bytes; a cut one is still a hint. (OFFSET 0 keeps the position out of the
-- choice of the index: a plan was seen that read the whole line to find a few ids.)
CREATE FUNCTION outlast_notify_v1(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('outlast', 'queue:' || left(q.queue, 1000))
    FROM (SELECT DISTINCT j.queue
          FROM unnest(p_ids) AS i (id)
          CROSS JOIN LATERAL (
              SELECT queue, position, state, solo FROM outlast_jobs WHERE id = i.id OFFSET 0) j
          WHERE j.position IS NOT NULL OR (j.state = 'queued' AND j.solo > 0)) q;
END
$$;
