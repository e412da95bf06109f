-- Note that an attempt of a job in a stream has ended, or that a job has joined its stream: the one place where an
-- attempt's permits are given back, whichever verb ended it (end, release, snooze, reconcile, reap, a completion in a
-- task's own transaction, the deletion of a job that is kept for no time).
--
-- The notice is appended in the transaction that changes the job's row, which holds that row's lock. So it is there
-- exactly if the change is: a refused end changes no row and gives nothing back, an end that is handed in again finds
-- the attempt closed, and of an end and a reap one changes the row. Nothing is waited for, so a transaction that stays
-- open for long, or a client that stops reading, holds no permit's row; its notice counts from its commit on.
--
-- In an ordered stream (",true]" in what the job needs) the end of an attempt also counts as an arrival, and so does the
-- end of a job that has begun and waits to run again: the stream is looked at again, as its holder may
-- be gone. The text may also occur in a key: then a stream is looked at once too often.
CREATE FUNCTION outlast_notice_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.position IS NULL AND NEW.position IS NOT NULL OR strpos(OLD.needs, ',true]') > 0) THEN
        INSERT INTO outlast_notices (stream, ended, arrived, task, queue, rank)
        VALUES (NEW.stream, (OLD.state = 'running' AND NEW.state <> 'running')::integer, true,
                NEW.task, NEW.queue, CASE WHEN NEW.aged IS NULL THEN -NEW.priority ELSE 0 END);
    ELSIF TG_OP = 'DELETE' AND strpos(OLD.needs, ',true]') > 0 THEN
        INSERT INTO outlast_notices (stream, ended, arrived, task, queue, rank)
        VALUES (OLD.stream, 1, true, OLD.task, OLD.queue, -OLD.priority);
    ELSE
        INSERT INTO outlast_notices (stream, ended) VALUES (OLD.stream, 1);
    END IF;
    RETURN NULL;
END
$$;
