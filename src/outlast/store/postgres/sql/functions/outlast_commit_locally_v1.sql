-- Commit what is written on a worker's row without waiting for a standby. Called by the trigger
-- outlast_workers_commit_locally, once for each statement.
--
-- Where a synchronous
-- standby is away, each commit that waits for it waits without end, past statement_timeout, and keeps its
-- row locked meanwhile: one beat, or any other write of that row, would hold up all later beats,
-- and the worker would end healthy attempts for want of them.
--
-- Why that is enough. What a failover to the standby may take back is the last few writes of workers'
-- rows, never one that something lasting rests on: claims, ends and reclaims do wait, and what was logged
-- before them has arrived before them. A beat that was taken back shortens no lease: it is another
-- incarnation of the database that answers then, and an observer starts over. A worker whose
-- row is not there, or is at an earlier epoch or status, registers or reconnects as after any loss; one
-- that had been found gone and is active again beats on, with all its jobs, or is found gone again.
-- With synchronous_commit = off it stays off.
--
-- Nothing that writes such a row changes a job in the same transaction, so this lessens no promise.
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
