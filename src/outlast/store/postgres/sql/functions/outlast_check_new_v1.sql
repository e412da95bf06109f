-- Raise an error unless this transaction has stored all of these jobs, and they are in one of these states. A link, a
-- label or a window affects the job that it names, so roles that may only enqueue write them through functions that run
-- as their owner, for new jobs alone. Each job is read by its id; no other session sees it yet, so nothing races with
-- it.
--
-- A row that a statement sees and whose transaction is under way can only be this transaction's own. xmin has only the
-- lower half of an id; this transaction's id gives the upper one. A savepoint has an id of its own, above that of its
-- transaction; an id far above is an old one.
CREATE FUNCTION outlast_check_new_v1(p_ids bigint[], p_states text[] DEFAULT '{queued,blocked}') RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_id bigint := pg_current_xact_id()::text::bigint;
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT (SELECT CASE WHEN j.state = ANY (p_states)
                                                  THEN (j.xmin::text::bigint - v_id) & 4294967295 END
                                      FROM outlast_jobs j WHERE j.id = ANY (ARRAY[u.id])) AS above
                     FROM unnest(p_ids) AS u (id)) w
        WHERE (CASE WHEN w.above < 2147483648
                    THEN pg_xact_status((v_id + w.above)::text::xid8) = 'in progress' END) IS NOT TRUE)
    THEN
        RAISE EXCEPTION 'a job was not stored by this transaction' USING ERRCODE = '42501';
    END IF;
END
$$;
