-- Resolve the ends and requeues of parents for their children: children that no attempt has begun end with a parent
-- that is dead or cancelled, and wait again once it is requeued, unless another of their dependencies has failed. A
-- child with a key continues: it may also be another's. Changes at most p_most children. stay: jobs that must be
-- checked again. more: there may be more. Returns the ids of jobs that can run now. Called by outlast_resolve_v1.
--
-- The parent is locked before it is read: a requeue either comes before this, or finds the children that this has
-- cancelled. Nothing here waits: rows that other sessions hold are passed over, and checked again. While a child is
-- cancelled, its upstream jobs are followed as before (outlast_follow_v1), so when it returns, it is free or one of
-- them is watched.
CREATE FUNCTION outlast_follow_children_v1(p_looks bigint[], p_most integer, OUT ids bigint[], OUT stay bigint[], OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_parents bigint[]; v_children bigint[]; v_held bigint[]; v_back bigint[];
BEGIN
    more := false;
    stay := '{}';
    v_parents := ARRAY(SELECT u FROM unnest(p_looks) AS u
                       WHERE EXISTS (SELECT FROM outlast_dependencies d WHERE d.job_id = u AND d.place < 0));
    IF v_parents = '{}' THEN RETURN; END IF;
    v_held := ARRAY(SELECT j.id FROM unnest(v_parents) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                    FOR NO KEY UPDATE OF j SKIP LOCKED);
    stay := ARRAY(SELECT j.id FROM unnest(v_parents) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                  WHERE j.id <> ALL (v_held));
    SELECT coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.id) FILTER (WHERE c.state = 'cancelled'), '{}')
    INTO v_children, v_back
    FROM (
        SELECT c.id, c.state FROM unnest(v_held) AS u (id)
        JOIN outlast_jobs p ON p.id = ANY (ARRAY[u.id])
        CROSS JOIN LATERAL (
            SELECT c.id, c.state FROM outlast_dependencies d JOIN outlast_jobs c ON c.id = d.upstream_id
            WHERE d.job_id = p.id AND d.place < 0 AND c.attempt_count = 0 AND c.key IS NULL
              AND CASE WHEN p.state IN ('dead', 'cancelled') THEN c.state IN ('queued', 'blocked')
                       ELSE p.ended_at IS NULL AND c.state = 'cancelled' AND NOT c.cancel_requested
                            AND (c.expires_at IS NULL OR c.expires_at > v_now)
                            AND NOT EXISTS (SELECT FROM outlast_dependencies f WHERE f.job_id = c.id AND f.state = 3) END
            LIMIT p_most) c
        LIMIT p_most) c;
    -- children that have changed since, for example by a cancel, are checked again
    v_held := ARRAY(SELECT j.id FROM unnest(v_children) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                    WHERE j.attempt_count = 0
                      AND j.state = ANY (CASE WHEN j.id = ANY (v_back) THEN '{cancelled}'::text[] ELSE '{queued,blocked}'::text[] END)
                    FOR NO KEY UPDATE OF j SKIP LOCKED);
    IF cardinality(v_held) < cardinality(v_children) OR cardinality(v_children) >= p_most THEN
        stay := v_parents;
        more := cardinality(v_children) >= p_most;
    END IF;
    v_back := ARRAY(SELECT u FROM unnest(v_held) AS u WHERE u = ANY (v_back));

    UPDATE outlast_jobs j
    SET state = 'cancelled', position = NULL, ended_at = v_now
    WHERE j.id = ANY (v_held) AND j.id <> ALL (v_back);
    PERFORM outlast_note_v1(ARRAY(SELECT u FROM unnest(v_held) AS u WHERE u <> ALL (v_back)),
                            p_ran => false, p_had_ended => false);
    IF v_back <> '{}' THEN
        WITH back AS (
            UPDATE outlast_jobs j
            SET ended_at = NULL, state = CASE WHEN f.waits THEN 'blocked' ELSE 'queued' END,
                run_at = CASE WHEN f.waits THEN j.run_at ELSE greatest(j.run_at, v_now) END,
                position = CASE WHEN NOT f.waits AND j.run_at <= v_now THEN nextval('outlast_position_seq') END
            FROM (SELECT u.id, EXISTS (
                             SELECT FROM outlast_dependencies d LEFT JOIN outlast_jobs o ON o.id = d.upstream_id
                             WHERE d.job_id = u.id AND (d.state IN (0, 1) OR d.state = 4 AND o.state IS DISTINCT FROM 'completed')
                         ) AS waits
                  FROM unnest(v_back) AS u (id)) f
            WHERE j.id = f.id
            RETURNING j.id, j.position)
        SELECT array_agg(b.id) FILTER (WHERE b.position IS NOT NULL) INTO ids FROM back b;
        PERFORM outlast_note_v1(v_back, p_ran => false, p_had_ended => true);
    END IF;
END
$$;
