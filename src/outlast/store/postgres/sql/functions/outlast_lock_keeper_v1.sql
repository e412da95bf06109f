-- Take the keeper lock (outlast_keeper_lock_v1) to the end of the transaction, and return whether it was free within
-- p_wait seconds (NULL: wait for as long as a statement may). Sessions get it in order of arrival: a try fails while
-- another session waits. If the client stops between two statements, the server ends its transaction after two seconds,
-- since all jobs under limits wait for it.
CREATE FUNCTION outlast_lock_keeper_v1(p_wait double precision) RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = 0
AS $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '2s', true);
    IF pg_try_advisory_xact_lock(outlast_keeper_lock_v1()) THEN RETURN true; END IF;
    PERFORM set_config('lock_timeout', coalesce((1000 * p_wait)::integer, 0)::text, true);
    BEGIN
        PERFORM pg_advisory_xact_lock(outlast_keeper_lock_v1());
        RETURN true;
    EXCEPTION WHEN lock_not_available THEN
        RETURN false;
    END;
END
$$;
