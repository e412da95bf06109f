-- Raise an error unless this transaction has stored all of these jobs, and they are in one of these states. A link, a
-- label or a window affects the job that it names, so roles that may only enqueue write them through functions that run
-- as their owner, for new jobs alone. Each job is read by its id; no other session sees it yet, so nothing races with
-- it.
CREATE FUNCTION outlast_check_new_v1(p_ids bigint[], p_states text[] DEFAULT '{queued,blocked}') RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT (SELECT CASE WHEN j.state = ANY (p_states) THEN j.xmin::text END
                                      FROM outlast_jobs j WHERE j.id = ANY (ARRAY[u.id])) AS written_by
                     FROM unnest(p_ids) AS u (id)) w
        WHERE (w.written_by IS NOT NULL AND outlast_stored_now_v1(w.written_by::xid)) IS NOT TRUE)
    THEN
        RAISE EXCEPTION 'a job was not stored by this transaction' USING ERRCODE = '42501';
    END IF;
END
$$;
