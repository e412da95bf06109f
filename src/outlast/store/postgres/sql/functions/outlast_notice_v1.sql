-- Note that an attempt of a job in a stream has ended, or that a job has joined its stream: the one place where an
-- attempt's permits are given back, whichever verb ended it (end, release, snooze, reconcile, reap, a completion in a
-- task's own transaction, the deletion of a job that is kept for no time).
--
-- The notice is appended in the transaction that changes the job's row, which holds that row's lock. So it is there
-- exactly if the change is: a refused end changes no row and gives nothing back, an end that is handed in again finds
-- the attempt closed, and of an end and a reap one changes the row. Nothing is waited for, so a transaction that stays
-- open for long, or a client that stops reading, holds no permit's row; its notice counts from its commit on.
CREATE FUNCTION outlast_notice_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.position IS NULL AND NEW.position IS NOT NULL THEN
        INSERT INTO outlast_notices (stream, ended, arrived, task, queue, rank)
        VALUES (NEW.stream, (OLD.state = 'running' AND NEW.state <> 'running')::integer, true,
                NEW.task, NEW.queue, CASE WHEN NEW.aged IS NULL THEN -NEW.priority ELSE 0 END);
    ELSE
        INSERT INTO outlast_notices (stream, ended) VALUES (OLD.stream, 1);
    END IF;
    RETURN NULL;
END
$$;
