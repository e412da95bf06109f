-- Make jobs due that wait for one of these events, if that event was sent (called by outlast_resolve_v1, for the names
-- in notices): at most p_most, without jobs that another session holds, which would fill each round. stay: the names
-- whose notices must stay, since there may be more jobs, or another session holds one of them. Returns the ids of the
-- jobs that can run now.
--
-- The end of an attempt that waits (outlast_end_v1) and a sender (outlast_keep_event_v1), whose transaction may stay
-- open for long, do not see each other. Each leaves a notice in its own commit, and a notice is read after that commit.
-- The session that reads the notice of the later commit sees both the event and the job that waits. Hence an exchange
-- passes over the notices of its own ends (outlast_resolve_v1): a sender could commit between that read and the commit
-- of the end, and a session that does not see the end could resolve the sender's notice meanwhile. The next exchange
-- reads them.
--
-- A concurrent claim at the end of the wait, a cancel, an expiry: each holds the job's row, and afterwards the job is
-- no longer queued with this token and without a position, so it is left alone here. Such a job looks for the event
-- itself when it runs next, and keeps the result as a step: so each wait has one outcome. A late worker that hands in
-- an end finds another token.
CREATE FUNCTION outlast_wake_v1(p_names text[], p_most integer, OUT ids bigint[], OUT stay text[], OUT more boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_events text[]; v_held bigint[];
BEGIN
    SELECT coalesce(array_agg(f.job_id), '{}'), coalesce(array_agg(f.event), '{}') INTO v_held, v_events
    FROM (SELECT w.job_id, w.event
          FROM unnest(p_names) AS u (name)
          CROSS JOIN LATERAL (SELECT e.name FROM outlast_events e WHERE e.name = u.name OFFSET 0) e
          CROSS JOIN LATERAL (SELECT w.job_id, w.event FROM outlast_waits w
                              WHERE w.event = e.name AND NOT w.woken ORDER BY w.event, w.woken OFFSET 0) w
          JOIN outlast_jobs j ON j.id = ANY (ARRAY[w.job_id])
          LIMIT p_most FOR NO KEY UPDATE OF j SKIP LOCKED) f;
    UPDATE outlast_waits w SET woken = true WHERE w.job_id = ANY (v_held) AND w.event = ANY (v_events);
    WITH woken AS (
        UPDATE outlast_jobs j SET run_at = v_now, position = nextval('outlast_position_seq')
        FROM outlast_waits w
        WHERE w.job_id = ANY (v_held) AND w.event = ANY (v_events) AND j.id = w.job_id AND j.token = w.token
          AND j.state = 'queued' AND j.position IS NULL
        RETURNING j.id)
    SELECT array_agg(w.id) INTO ids FROM woken w;
    PERFORM outlast_note_v1(ids, p_ran => false, p_had_ended => false);
    more := cardinality(v_held) >= p_most;
    stay := CASE WHEN more THEN p_names ELSE ARRAY(
        SELECT u.name FROM unnest(p_names) AS u (name)
        CROSS JOIN LATERAL (SELECT FROM outlast_events e WHERE e.name = u.name OFFSET 0) e
        CROSS JOIN LATERAL (SELECT FROM outlast_waits w WHERE w.event = u.name AND NOT w.woken LIMIT 1) w) END;
END
$$;
