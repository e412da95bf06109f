-- Commit writes to a worker's row without waiting for a standby (called by triggers, once for each statement).
--
-- If the synchronous standby is away, each commit that waits for it waits without end, past statement_timeout, and
-- keeps its row locked meanwhile: one write would block all later beats, and the worker would end healthy attempts
-- because its lease runs out.
--
-- Why a local commit is enough: a failover to the standby may lose the last few writes of workers' rows, but nothing
-- lasting depends on these. Claims, ends and reclaims do wait for the standby, and everything logged before them has
-- reached it before them; no transaction that writes such a row also changes a job. A lost beat shortens no lease:
-- another incarnation of the database answers, and observers start over. A worker whose row is missing, or is at an
-- earlier epoch or status, registers or reconnects as after any loss. A worker that had been found gone and is active
-- again keeps beating with all its jobs, or is found gone again.
CREATE FUNCTION outlast_commit_locally_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') <> 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    RETURN NULL;
END
$$;
