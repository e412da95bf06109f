-- Resolve at most p_most notices: about events (outlast_wake_v1), and about upstream jobs, for the jobs that wait for
-- them (outlast_follow_v1, which argues about ends and requeues) and for their children (outlast_follow_children_v1).
-- more: there may be more. Returns the ids of jobs that can run now. Runs inside outlast_prepare_claim_v1. After a full
-- round, notices that have to stay go to the end: otherwise they would fill each round while a session holds their
-- jobs. A notice that another session holds is passed over, and so is a new one of this transaction.
--
-- An enqueue that names an existing job touches no row of it (the enqueue's transaction may stay open for long): it
-- stores a dependency in state 0 and a notice. The end of that job may be under way and see no dependency; this
-- function, which runs after the enqueue's commit, may not see the end. So it locks the upstream job before it reads
-- it: if the job has ended, that is seen; if not, the commit that puts the dependency into state 1 also sets awaited,
-- and the end, which comes after that lock, sees both. A job that another session holds at this moment is checked again
-- later. (A read without the lock was seen to lose the end; FOR SHARE loses the end of a transaction with an older
-- snapshot, and if the enqueue set awaited, it would hold the row of a running job for as long as its caller's
-- transaction.)
CREATE FUNCTION outlast_resolve_v1(p_most integer, OUT ids bigint[], OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_notices tid[]; v_looks bigint[]; v_new bigint[]; v_free bigint[]; v_held bigint[] := '{}';
    v_names text[]; v_woken record; v_followed record; v_children record;
BEGIN
    more := EXISTS (SELECT FROM outlast_upstream_notices n WHERE n.is_new AND n.xmin = pg_current_xact_id()::xid);
    SELECT array_agg(n.row), array_agg(DISTINCT n.job_id) FILTER (WHERE n.event IS NULL),
           array_agg(DISTINCT n.job_id) FILTER (WHERE n.is_new), array_agg(DISTINCT n.event) FILTER (WHERE n.event IS NOT NULL)
    INTO v_notices, v_looks, v_new, v_names
    FROM (SELECT n.ctid AS row, n.job_id, n.is_new, n.event FROM outlast_upstream_notices n
          WHERE n.event IS NULL AND NOT n.is_new OR n.xmin <> pg_current_xact_id()::xid
          ORDER BY n.id LIMIT p_most FOR UPDATE SKIP LOCKED) n;
    IF v_notices IS NULL THEN RETURN; END IF;
    IF v_names IS NOT NULL THEN
        v_woken := outlast_wake_v1(v_names, p_most);
        ids := v_woken.ids;
        DELETE FROM outlast_upstream_notices n WHERE n.ctid = ANY (v_notices) AND n.event IS NOT NULL AND n.event <> ALL (v_woken.stay);
        more := more OR v_woken.more;
    END IF;

    IF v_new IS NOT NULL THEN
        v_free := ARRAY(SELECT j.id FROM unnest(v_new) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                        FOR NO KEY UPDATE OF j SKIP LOCKED);
        UPDATE outlast_jobs j SET awaited = true WHERE j.id = ANY (v_free) AND NOT j.awaited;
        v_held := ARRAY(SELECT j.id FROM unnest(v_new) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                        WHERE j.id <> ALL (v_free));
    END IF;
    v_followed := outlast_follow_v1(ARRAY(SELECT u FROM unnest(v_looks) AS u WHERE u <> ALL (v_held)), p_most);
    v_children := outlast_follow_children_v1(v_looks, p_most);
    ids := ids || v_followed.ids || v_children.ids;
    DELETE FROM outlast_upstream_notices n
    WHERE n.ctid = ANY (v_notices) AND n.event IS NULL AND n.job_id <> ALL (v_held || v_followed.stay || v_children.stay);
    more := more OR v_followed.more OR v_children.more;
    IF cardinality(v_notices) >= p_most THEN
        more := true;
        UPDATE outlast_upstream_notices n SET id = DEFAULT WHERE n.ctid = ANY (v_notices);
    END IF;
END
$$;
