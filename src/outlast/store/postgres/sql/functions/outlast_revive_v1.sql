-- Queue a dead or cancelled job again, whose row the caller has locked: a step of outlast_requeue_v1, which argues why
-- that is right.
CREATE FUNCTION outlast_revive_v1(p_id bigint, p_from_scratch boolean) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE outlast_jobs j
    SET state = 'queued', position = nextval('outlast_position_seq'),
        run_at = clock_timestamp(), requeued_at = clock_timestamp(), failures = 0, losses = 0,
        solo = 0, incident = NULL, fingerprint = NULL, started_at = NULL,
        ended_at = NULL, prune_at = NULL, expires_at = NULL, cancel_requested = false, progress = NULL,
        checkpoint = CASE WHEN p_from_scratch THEN NULL ELSE j.checkpoint END,
        checkpoint_at = CASE WHEN p_from_scratch THEN NULL ELSE j.checkpoint_at END
    WHERE j.id = p_id;
    UPDATE outlast_dependencies d SET state = 2 WHERE d.job_id = p_id AND d.state <> 2;
    IF p_from_scratch THEN
        DELETE FROM outlast_steps s WHERE s.job_id = p_id;
        DELETE FROM outlast_waits w WHERE w.job_id = p_id;
        DELETE FROM outlast_dependencies d WHERE d.job_id = p_id AND d.place < 0;
    END IF;
END
$$;
