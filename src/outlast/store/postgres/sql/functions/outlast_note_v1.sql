-- Leave the notices of changes of these jobs, which this transaction has just made: each function that ends an attempt or
-- a job, puts a job into the line, or takes an end back calls it. p_ran: they were running; p_had_ended: they had ended.
--
-- Right against a claim, a reap and a late worker: the caller holds the locks of the jobs' rows, so the notices are there
-- exactly if the changes are. A refused end changes no row and gives nothing back, and of an end and a reap one changes
-- the row. Nothing is waited for, so a transaction that stays open for long holds up no other; its notices count from
-- its commit on. One of a caller whose snapshot is older than `awaited` (REPEATABLE READ) fails (40001).
-- There it is planned by the caller's settings, as the completion itself: a plan from a small table ends with ANALYZE.
--
-- A stream gets one notice, with how many attempts have ended and whether a job has joined it. In an ordered stream
-- (",true]" in what its jobs need) the end of an attempt, or of a job that waits to run again, counts as an arrival: the
-- stream is looked at again, as its holder may be gone. (In a key, the text costs a look.) A job that others wait for
-- gets a notice when it has ended, or runs again.
CREATE FUNCTION outlast_note_v1(p_ids bigint[], p_ran boolean, p_had_ended boolean) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    WITH changed AS MATERIALIZED (
        SELECT j.id, j.stream, j.task, j.queue,
               j.awaited AND (j.ended_at IS NULL) = p_had_ended AS awaited,
               (j.position IS NOT NULL OR (p_ran OR j.ended_at IS NOT NULL AND j.attempt_count > 0)
                                          AND strpos(j.needs, ',true]') > 0) IS TRUE AS arrived
        FROM unnest(p_ids) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
    ), upstream AS (
        INSERT INTO outlast_upstream_notices (job_id) SELECT c.id FROM changed c WHERE c.awaited
    )
    INSERT INTO outlast_notices (stream, ended, arrived, task, queue)
    SELECT c.stream, CASE WHEN p_ran THEN count(*) ELSE 0 END, bool_or(c.arrived), c.task, c.queue
    FROM changed c WHERE c.stream IS NOT NULL AND (p_ran OR c.arrived)
    GROUP BY c.stream, c.task, c.queue;
END
$$;
