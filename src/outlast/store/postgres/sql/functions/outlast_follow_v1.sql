-- Resolve the ends and requeues of upstream jobs: a job with nothing left to wait for becomes queued; a job that waits
-- for an end that can no longer come is cancelled; a job that was cancelled for that reason waits again if the upstream
-- job was requeued or skipped. Called for notices (outlast_resolve_v1), and for the completions of an exchange in their
-- own transaction (outlast_hand_in_v1), which cost no notice. Changes at most p_most dependencies. stay: jobs that must
-- be checked again, since there may be more, or another session holds a waiting job. more: there are new notices.
-- Returns the ids of jobs that can run now.
--
-- Most completions change no dependency. Of the jobs that were stored with the waiting one and have to complete, only
-- the one in the highest place is watched; the others are quiet (state 4). When the watched job has completed, a walk
-- down the places passes over completed ones and stops at the first that has not; that one is watched next, through a
-- notice. So each quiet dependency of a blocked job above its highest one in state 0, 1 or 3 has been met; and a job is
-- free when no such dependency is above the one that was just met, and the walk down from there finds none. A walk
-- passes over state 2, and stops after ten times p_most quiet ones, to continue by a notice. Any other end of a quiet
-- upstream job is seen at once.
--
-- Nothing here waits: rows that other sessions hold are passed over (SKIP LOCKED). Why no end is missed, and none is
-- counted twice:
--   * Jobs stored by the same statement as the jobs that wait for them are awaited from the start, so each end is
--     followed: a completion by this function, any other end by a notice (outlast_note_v1).
--   * Two ends at once, each the last but one: a session that resolves a dependency first locks the row of the blocked
--     job, and only then, by a new statement, counts the dependencies that are left. So one of the two sees all met.
--   * The completion of a quiet job that the walk does not see yet, while that completion does not see that its job
--     would be watched: the dependency is put into state 0 with a notice, and the next exchange checks it under the
--     lock of the upstream job (outlast_resolve_v1). A lock taken here would hold the row of a job that is about to end
--     until this commit.
--   * A requeue of the upstream job while its end is resolved: its state is read under the lock of the blocked job.
--     Either the requeue is seen here, or an exchange that locks the blocked job after this commit resolves the notice
--     of the requeue, and undoes the failure.
--   * A cancel, an expiry or a requeue of the blocked job: they hold its row. A job that no longer waits is left alone.
--   * A deleted upstream job counts as ended but not completed; one that a walk meets has completed, as any other end
--     was seen before the deletion. A job that needs its result is told that it is gone (dependencies.sql).
--   * A cancelled job that has a key does not wait again: another job may have its key, and the unique index would make
--     this wait for a transaction that has stored such a job and not committed.
CREATE FUNCTION outlast_follow_v1(p_looks bigint[], p_most integer, OUT ids bigint[], OUT stay bigint[], OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_pairs record; v_jobs bigint[]; v_held bigint[]; v_met bigint[]; v_below integer[];
    v_failed bigint[]; v_open bigint[]; v_again bigint[]; v_gone bigint[]; v_noted bigint[];
BEGIN
    more := false;
    stay := '{}';
    -- the jobs that wait for these, except jobs for which nothing changes: they would fill each round
    SELECT array_agg(d.upstream_id) AS upstreams, array_agg(d.job_id) AS jobs, array_agg(d.place) AS places
    INTO v_pairs
    FROM (SELECT d.upstream_id, d.job_id, d.place
          FROM unnest(p_looks) AS u (id)
          LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
          CROSS JOIN LATERAL (
              SELECT d.upstream_id, d.job_id, d.place FROM outlast_dependencies d
              WHERE d.upstream_id = u.id
                AND d.state = ANY (CASE WHEN j.state = 'completed' THEN '{0,1,3}'::smallint[]
                                        WHEN j.id IS NULL OR j.ended_at IS NOT NULL THEN '{0,1,4}'::smallint[]
                                        ELSE '{0,3}'::smallint[] END)
                AND (d.state <> 3 OR d.wants = 0 OR j.ended_at IS NULL)
              LIMIT p_most) d
          LIMIT p_most) d;
    IF v_pairs.jobs IS NULL THEN RETURN; END IF;
    v_jobs := ARRAY(SELECT DISTINCT u FROM unnest(v_pairs.jobs) AS u);
    v_held := ARRAY(SELECT j.id FROM unnest(v_jobs) AS u (id) JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id])
                    FOR NO KEY UPDATE OF j SKIP LOCKED);
    WITH changed AS (
        UPDATE outlast_dependencies d
        SET state = CASE WHEN p.runs THEN 1
                         WHEN p.waits AND NOT (d.wants = 1 OR p.ended = CASE d.wants WHEN 0 THEN 'completed' ELSE 'dead' END)
                         THEN 3 ELSE 2 END
        FROM (SELECT u.job_id, u.place, coalesce(j.state, '') AS ended, j.id IS NOT NULL AND j.ended_at IS NULL AS runs,
                     g.state = 'blocked' OR g.state = 'cancelled' AND NOT g.cancel_requested AS waits, g.state = 'cancelled' AS is_cancelled
              FROM unnest(v_pairs.upstreams, v_pairs.jobs, v_pairs.places) AS u (upstream_id, job_id, place)
              JOIN outlast_jobs g ON g.id = ANY (ARRAY[u.job_id])
              LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.upstream_id])
              WHERE u.job_id = ANY (v_held)) p
        WHERE d.job_id = p.job_id AND d.place = p.place
          AND d.state = ANY (CASE WHEN p.runs THEN '{0,3}'::smallint[] WHEN p.ended = 'completed' THEN '{0,1,3}'::smallint[]
                                  ELSE '{0,1,4}'::smallint[] END)
        RETURNING d.job_id, d.place, d.state, p.waits, CASE WHEN p.is_cancelled AND d.state <> 3 THEN (
            SELECT o.state = 3 FROM outlast_dependencies o WHERE o.job_id = d.job_id AND o.place = d.place) END AS was_failed)
    SELECT array_agg(c.job_id) FILTER (WHERE c.failed), array_agg(c.job_id) FILTER (WHERE c.again),
           array_agg(c.job_id) FILTER (WHERE c.met IS NOT NULL), array_agg(c.met) FILTER (WHERE c.met IS NOT NULL)
    INTO v_failed, v_again, v_met, v_below
    FROM (SELECT c.job_id, bool_or(c.state = 3) AS failed, bool_or(c.was_failed) AS again,
                 max(c.place) FILTER (WHERE c.state = 2 AND c.waits) AS met
          FROM changed c GROUP BY c.job_id) c;

    -- the consequences for the waiting jobs
    IF v_met IS NOT NULL THEN
        WITH walked AS MATERIALIZED (
            SELECT m.job_id, w.place, w.state, w.state = 4 AND w.ended IS DISTINCT FROM 'completed' AS is_new
            FROM unnest(v_met, v_below) AS m (job_id, below)
            LEFT JOIN LATERAL (
                SELECT s.place, s.state, s.ended
                FROM (SELECT d.place, d.state, coalesce(j.state, 'completed') AS ended,
                             count(*) FILTER (WHERE d.state = 4) OVER (ORDER BY d.place DESC) AS quiet
                      FROM outlast_dependencies d
                      LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[d.upstream_id]) AND d.state = 4
                      WHERE d.job_id = m.job_id AND d.place < m.below) s
                WHERE s.state IN (0, 1, 3) OR s.state = 4 AND (s.ended IS DISTINCT FROM 'completed' OR s.quiet = 10 * p_most)
                LIMIT 1) w ON true
            LEFT JOIN LATERAL (  -- the LIMIT keeps this a probe of the index in every plan
                SELECT true AS is_left FROM outlast_dependencies d
                WHERE d.job_id = m.job_id AND d.place > m.below AND d.state IN (0, 1, 3) LIMIT 1) a ON true
            WHERE a.is_left IS NULL
        ), watched AS (
            UPDATE outlast_dependencies d SET state = CASE WHEN w.is_new THEN 0 ELSE 1 END
            FROM walked w WHERE d.job_id = w.job_id AND d.place = w.place AND w.state = 4
            RETURNING d.upstream_id, w.is_new
        ), noted AS (
            INSERT INTO outlast_upstream_notices (job_id, is_new) SELECT w.upstream_id, w.is_new FROM watched w)
        SELECT array_agg(w.job_id) FILTER (WHERE w.place IS NULL), coalesce(bool_or(w.state = 4), false)
        INTO v_open, more FROM walked w;
    END IF;
    IF v_failed IS NOT NULL THEN
        WITH ended AS (
            UPDATE outlast_jobs j
            SET state = 'cancelled', ended_at = v_now
            WHERE j.id = ANY (v_failed) AND j.state = 'blocked'
            RETURNING j.id, j.keep <= 0 AND NOT j.awaited AS gone, j.awaited)
        SELECT array_agg(e.id), array_agg(e.id) FILTER (WHERE e.gone), more OR coalesce(bool_or(e.awaited), false)
        INTO v_failed, v_gone, more FROM ended e;
        PERFORM outlast_note_v1(v_failed, p_ran => false, p_had_ended => false);
        IF v_gone IS NOT NULL THEN PERFORM outlast_forget_v1(v_gone); END IF;
    END IF;
    IF v_again IS NOT NULL THEN
        WITH again AS (
            UPDATE outlast_jobs j SET state = 'blocked', ended_at = NULL
            WHERE j.id = ANY (v_again) AND j.state = 'cancelled' AND NOT j.cancel_requested AND j.key IS NULL
              AND (j.expires_at IS NULL OR j.expires_at > v_now)
              AND NOT EXISTS (SELECT FROM outlast_dependencies d WHERE d.job_id = j.id AND d.state IN (0, 1, 3) AND d.state = 3)
            RETURNING j.id)
        SELECT array_agg(a.id) INTO v_again FROM again a;
        PERFORM outlast_note_v1(v_again, p_ran => false, p_had_ended => true);
        more := true;
    END IF;
    IF v_open IS NOT NULL THEN
        WITH opened AS (
            UPDATE outlast_jobs j
            SET state = 'queued', run_at = greatest(j.run_at, v_now),
                position = CASE WHEN j.run_at <= v_now THEN nextval('outlast_position_seq') END
            WHERE j.id = ANY (v_open) AND j.state = 'blocked'
            RETURNING j.id, j.position, j.stream)
        SELECT array_agg(o.id), array_agg(o.id) FILTER (WHERE o.stream IS NOT NULL) INTO ids, v_noted
        FROM opened o WHERE o.position IS NOT NULL;
        IF v_noted IS NOT NULL THEN PERFORM outlast_note_v1(v_noted, p_ran => false, p_had_ended => false); END IF;
    END IF;

    -- all are checked again where there may be more, and so are those with a job that another session holds
    IF cardinality(v_pairs.jobs) >= p_most THEN
        stay := p_looks;
        more := true;
    ELSIF cardinality(v_held) < cardinality(v_jobs) THEN
        stay := ARRAY(SELECT DISTINCT u.upstream_id FROM unnest(v_pairs.upstreams, v_pairs.jobs) AS u (upstream_id, job_id)
                      WHERE u.job_id <> ALL (v_held));
    END IF;
END
$$;
