-- Raise an error unless this transaction has stored all of these jobs, and they are in one of these states. A link, a label
-- or a window acts on the job that it names, so roles that may only enqueue write them by functions that run as their
-- owner, for new jobs alone. Each job is looked up by its id; no other session sees it yet, so nothing races with it.
CREATE FUNCTION outlast_check_new_v1(p_ids bigint[], p_states text[] DEFAULT '{queued,blocked}') RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_id bigint;
BEGIN
    SELECT u.id INTO v_id
    FROM (SELECT DISTINCT u FROM unnest(p_ids) AS u) u (id)
    WHERE (SELECT j.state = ANY (p_states) AND outlast_stored_now_v1(j.xmin)
           FROM outlast_jobs j WHERE j.id = ANY (ARRAY[u.id])) IS NOT TRUE LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job % was not stored by this transaction', v_id USING ERRCODE = '42501';
    END IF;
END
$$;
