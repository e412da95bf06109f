-- Store the dependencies of new blocked jobs. An upstream job that the same transaction has stored is awaited already
-- (states 1, 4); for any other, a notice makes outlast_resolve_v1 check for its end after this commit. An upstream job
-- does not change, except that it is kept. This runs as its owner, for roles that may only enqueue: the waiting jobs
-- are new (outlast_check_new_v1), and not parents (places below zero: `adopt`).
CREATE FUNCTION outlast_depend_v1(
    p_jobs bigint[], p_upstreams bigint[], p_wants smallint[], p_states smallint[], p_places integer[]) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM outlast_check_new_v1(p_jobs, '{blocked}');
    IF 0 > ANY (p_places) THEN
        RAISE EXCEPTION 'places of jobs upstream begin with 0' USING ERRCODE = '22023';
    END IF;
    INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
    SELECT h.job_id, h.upstream_id, h.wants, h.state, h.place
    FROM unnest(p_jobs, p_upstreams, p_wants, p_states, p_places) AS h (job_id, upstream_id, wants, state, place);
    INSERT INTO outlast_upstream_notices (job_id, is_new)
    SELECT DISTINCT h.upstream_id, true FROM unnest(p_upstreams, p_states) AS h (upstream_id, state) WHERE h.state = 0;
END
$$;
