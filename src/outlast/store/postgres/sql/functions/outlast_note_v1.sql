-- Leave the notices of changes of these jobs, which this transaction has just made. Each function that ends an attempt
-- or a job, puts a job into the line, or undoes an end calls it. p_ran: they were running; p_had_ended: they had ended.
--
-- Right against a claim, a reap and a late worker: the caller holds the locks of the jobs' rows, so the notices exist
-- exactly if the changes do. A refused end changes no row and releases nothing, and of an end and a reap only one
-- changes the row. This waits for nothing, so a transaction that stays open for long delays no other; its notices count
-- from its commit on. If the caller's snapshot is older than `awaited` (REPEATABLE READ), this fails (40001). In such a
-- caller's transaction this is planned by the caller's settings, like the completion itself: a plan made for a small
-- table lasts until ANALYZE.
--
-- A stream gets one notice, which says how many attempts have ended, whether a job has joined it, and at which place.
-- In an ordered stream (",true]" in the text of a job's needs) the end of an attempt, or of a job that waits to run
-- again, counts as an arrival: the stream is checked again, as its holder may be gone. (If a key contains that text, it
-- costs a needless check.) A job that others wait for gets a notice when it has ended, or runs again. If a job ends
-- where it waits for several permits, each of them gets a notice: one may keep a place for its stream (outlast_fold_v1).
CREATE FUNCTION outlast_note_v1(p_ids bigint[], p_ran boolean, p_had_ended boolean) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    WITH changed AS MATERIALIZED (
        SELECT j.id, j.stream, j.task, j.queue,
               CASE WHEN j.position IS NOT NULL THEN coalesce(j.aged, j.position) END AS place,
               j.awaited AND (j.ended_at IS NULL) = p_had_ended AS awaited,
               (j.position IS NOT NULL OR (p_ran OR j.ended_at IS NOT NULL AND j.attempt_count > 0)
                                          AND strpos(j.needs, ',true]') > 0) IS TRUE AS arrived
        FROM unnest(p_ids) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
    ), upstream AS (
        INSERT INTO outlast_upstream_notices (job_id) SELECT c.id FROM changed c WHERE c.awaited
    )
    INSERT INTO outlast_notices (stream, ended, arrived, task, queue, place)
    SELECT c.stream, CASE WHEN p_ran THEN count(*) ELSE 0 END, bool_or(c.arrived), c.task, c.queue,
           coalesce(min(c.place), 9223372036854775807)
    FROM changed c WHERE c.stream IS NOT NULL AND (p_ran OR c.arrived)
    GROUP BY c.stream, c.task, c.queue;
    IF NOT (p_ran OR p_had_ended) THEN
        INSERT INTO outlast_notices (permit)
        SELECT DISTINCT x.permit
        FROM unnest(p_ids) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id]) AND j.ended_at IS NOT NULL
        JOIN outlast_streams s ON s.id = ANY (ARRAY[j.stream]) AND cardinality(s.permits) > 1
        CROSS JOIN LATERAL unnest(s.permits) AS x (permit);
    END IF;
END
$$;
