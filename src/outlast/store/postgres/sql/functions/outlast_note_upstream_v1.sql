-- Note that a job for which others wait has ended, with whichever verb, or was requeued after its end.
--
-- The notice is appended in the transaction that changes the job's row, so it is there exactly if the change is. Nothing
-- is waited for: a transaction that stays open for long (complete_in) holds up no blocked job's row. A transaction of a
-- caller whose snapshot is older than awaited (REPEATABLE READ) fails to change the row (40001), and misses nothing.
CREATE FUNCTION outlast_note_upstream_v1() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO outlast_upstream_notices (job_id) VALUES (NEW.id);
    RETURN NULL;
END
$$;
