-- Do what notices about events say (outlast_wake_v1), and what those about upstream jobs say: jobs that no longer wait for anything become queued, jobs that wait for what
-- can no longer come are cancelled, and jobs that were cancelled for that reason wait again if the job upstream was
-- requeued. Looks at most at p_most notices and p_most dependencies; more: there may be more. Returns the ids of jobs that
-- can run now. Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1.
--
-- Nothing here waits: rows that other sessions hold are passed over (SKIP LOCKED), and the notice about them stays for a
-- later exchange. Why no end is missed, and none is counted twice:
--   * An enqueue that names a job which is there already touches no row of it (its transaction may stay open for long): it
--     stores a dependency in state 0 and a notice. The end of that job may be under way and see no dependency; this
--     function, which runs after the enqueue's commit, may not see the end. So it locks the upstream job before it looks:
--     if it has ended, that is seen; if not, awaited is set in the commit that puts the dependency into state 1, and the
--     end, which comes after that lock, leaves a notice. A job that is held by another session at this moment is looked
--     at again later. (A look without the lock was seen to lose the end; FOR SHARE loses one of a transaction whose
--     snapshot is older, and setting awaited in the enqueue would hold the row of a running job for its caller's time.)
--   * Jobs stored by the same statement as what waits for them are awaited from the start.
--   * Two ends at once, each the last but one: a session that resolves a dependency holds the row of the blocked job, and looks
--     only after that, by a new statement, at what is left. So one of the two sees all of them met.
--   * A requeue of the upstream job while its end is resolved: it leaves a notice of its own. Its state is read under the
--     lock of the blocked job; so either the requeue is seen here, or its notice is done by an exchange that locks the
--     blocked job after this commit, and takes the failure back.
--   * A cancel, an expiry or a requeue of the blocked job: they hold its row. What waits no longer is left alone.
--   * An upstream job that is no longer there counts as ended, and not as completed.
--   * A cancelled job that has a key does not wait again: its key may be another's by now, and the unique index would make
--     this wait for a transaction that has stored such a job and not committed.
CREATE FUNCTION outlast_resolve_v1(p_most integer, OUT ids bigint[], OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_notices tid[]; v_looks bigint[]; v_new bigint[]; v_free bigint[]; v_pairs record; v_jobs bigint[]; v_held bigint[];
    v_failed bigint[]; v_open bigint[]; v_again bigint[]; v_gone bigint[]; v_stay bigint[] := '{}';
    v_noted boolean := false; v_names text[]; v_woken record;
BEGIN
    more := false;
    SELECT array_agg(n.row), array_agg(DISTINCT n.job_id) FILTER (WHERE n.event IS NULL),
           array_agg(DISTINCT n.job_id) FILTER (WHERE n.is_new), array_agg(DISTINCT n.event) FILTER (WHERE n.event IS NOT NULL)
    INTO v_notices, v_looks, v_new, v_names
    FROM (SELECT n.ctid AS row, n.job_id, n.is_new, n.event FROM outlast_upstream_notices n
          WHERE n.event IS NULL OR n.xmin <> pg_current_xact_id()::xid
          ORDER BY n.id LIMIT p_most FOR UPDATE SKIP LOCKED) n;
    IF v_notices IS NULL THEN RETURN; END IF;
    IF v_names IS NOT NULL THEN
        v_woken := outlast_wake_v1(v_names, p_most);
        ids := v_woken.ids;
        DELETE FROM outlast_upstream_notices n WHERE n.ctid = ANY (v_notices) AND n.event <> ALL (v_woken.stay);
        more := v_woken.more OR cardinality(v_notices) >= p_most;
        IF v_looks IS NULL THEN RETURN; END IF;
    END IF;

    -- jobs that someone has begun to wait for: from now on their ends leave notices
    IF v_new IS NOT NULL THEN
        v_free := ARRAY(SELECT j.id FROM unnest(v_new) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                        FOR NO KEY UPDATE OF j SKIP LOCKED);
        UPDATE outlast_jobs j SET awaited = true WHERE j.id = ANY (v_free) AND NOT j.awaited;
        v_stay := ARRAY(SELECT j.id FROM unnest(v_new) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                        WHERE j.id <> ALL (v_free));
    END IF;

    -- the jobs that wait for these, without those for which nothing changes: else they would fill each round
    SELECT coalesce(array_agg(d.upstream_id), '{}') AS upstreams, coalesce(array_agg(d.job_id), '{}') AS jobs,
           coalesce(array_agg(d.place), '{}') AS places
    INTO v_pairs
    FROM (SELECT d.upstream_id, d.job_id, d.place
          FROM unnest(v_looks) AS u (id)
          LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
          CROSS JOIN LATERAL (
              SELECT d.upstream_id, d.job_id, d.place FROM outlast_dependencies d
              WHERE d.upstream_id = u.id
                AND d.state = ANY (CASE WHEN j.id IS NULL OR j.ended_at IS NOT NULL THEN '{0,1}'::smallint[]
                                        ELSE '{0,3}'::smallint[] END)
              ORDER BY d.upstream_id, d.state LIMIT p_most) d
          WHERE u.id <> ALL (v_stay)
          LIMIT p_most) d;
    v_jobs := ARRAY(SELECT DISTINCT u FROM unnest(v_pairs.jobs) AS u);
    v_held := ARRAY(SELECT j.id FROM unnest(v_jobs) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                    FOR NO KEY UPDATE OF j SKIP LOCKED);
    WITH changed AS (
        UPDATE outlast_dependencies d
        SET state = CASE WHEN p.runs THEN 1
                         WHEN p.waits AND NOT (d.wants = 1 OR p.ended = CASE d.wants WHEN 0 THEN 'completed' ELSE 'dead' END)
                         THEN 3 ELSE 2 END
        FROM (SELECT u.job_id, u.place, coalesce(j.state, '') AS ended, j.id IS NOT NULL AND j.ended_at IS NULL AS runs,
                     g.state = 'blocked' OR g.state = 'cancelled' AND NOT g.cancel_requested AS waits
              FROM unnest(v_pairs.upstreams, v_pairs.jobs, v_pairs.places) AS u (upstream_id, job_id, place)
              JOIN outlast_jobs g ON g.id = ANY (ARRAY[u.job_id])
              LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.upstream_id])
              WHERE u.job_id = ANY (v_held)) p
        WHERE d.job_id = p.job_id AND d.place = p.place
          AND (p.runs AND d.state IN (0, 3) OR NOT p.runs AND d.state IN (0, 1))
        RETURNING d.job_id, p.runs)
    SELECT coalesce(array_agg(DISTINCT c.job_id) FILTER (WHERE c.runs), '{}') INTO v_again FROM changed c;

    -- what follows for them
    SELECT coalesce(array_agg(h.id) FILTER (WHERE h.failed), '{}'), coalesce(array_agg(h.id) FILTER (WHERE h.free), '{}'),
           coalesce(array_agg(h.id) FILTER (WHERE NOT h.failed AND h.id = ANY (v_again)), '{}')
    INTO v_failed, v_open, v_again
    FROM (SELECT h.id,
                 EXISTS (SELECT FROM outlast_dependencies d WHERE d.job_id = h.id AND d.state = 3) AS failed,
                 NOT EXISTS (SELECT FROM outlast_dependencies d WHERE d.job_id = h.id AND d.state <> 2) AS free
          FROM unnest(v_held) AS h (id)) h;
    IF v_failed <> '{}' THEN
        WITH ended AS (
            UPDATE outlast_jobs j
            SET state = 'cancelled', ended_at = v_now,
                prune_at = CASE WHEN j.keep IS NOT NULL THEN v_now + greatest(0, least(j.keep, 1e9)) * interval '1 second' END
            WHERE j.id = ANY (v_failed) AND j.state = 'blocked'
            RETURNING j.id, j.keep <= 0 AND NOT j.awaited AS gone, j.awaited)
        SELECT array_agg(e.id), array_agg(e.id) FILTER (WHERE e.gone), coalesce(bool_or(e.awaited), false)
        INTO v_failed, v_gone, v_noted FROM ended e;
        PERFORM outlast_note_v1(v_failed, p_ran => false, p_had_ended => false);
        IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;
    END IF;
    IF v_open <> '{}' THEN
        WITH opened AS (
            UPDATE outlast_jobs j
            SET state = 'queued', run_at = greatest(j.run_at, v_now),
                position = CASE WHEN j.run_at <= v_now THEN nextval('outlast_position_seq') END
            WHERE j.id = ANY (v_open) AND j.state = 'blocked'
            RETURNING j.id, j.position)
        SELECT array_agg(o.id) INTO v_open FROM opened o WHERE o.position IS NOT NULL;
        ids := ids || v_open;
        PERFORM outlast_note_v1(v_open, p_ran => false, p_had_ended => false);
    END IF;
    IF v_again <> '{}' THEN
        WITH again AS (
            UPDATE outlast_jobs j SET state = 'blocked', ended_at = NULL, prune_at = NULL
            WHERE j.id = ANY (v_again) AND j.state = 'cancelled' AND NOT j.cancel_requested AND j.key IS NULL
              AND (j.expires_at IS NULL OR j.expires_at > v_now)
            RETURNING j.id)
        SELECT array_agg(a.id) INTO v_open FROM again a;
        PERFORM outlast_note_v1(v_open, p_ran => false, p_had_ended => true);
    END IF;

    -- all are looked at again where there may be more, and those of which a job is held by another session
    IF cardinality(v_pairs.jobs) >= p_most THEN
        v_stay := v_looks;
    ELSIF cardinality(v_held) < cardinality(v_jobs) THEN
        v_stay := v_stay || ARRAY(SELECT u.upstream_id FROM unnest(v_pairs.upstreams, v_pairs.jobs) AS u (upstream_id, job_id)
                                  WHERE u.job_id <> ALL (v_held));
    END IF;
    DELETE FROM outlast_upstream_notices n
    WHERE n.ctid = ANY (v_notices) AND n.event IS NULL AND n.job_id <> ALL (v_stay);
    more := more OR cardinality(v_notices) >= p_most OR cardinality(v_pairs.jobs) >= p_most OR v_noted OR v_again <> '{}';
END
$$;
