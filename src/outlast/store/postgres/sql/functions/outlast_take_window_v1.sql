-- Take the window of a key and a task, unless a job has been stored in the present window. A window is p_seconds long
-- and begins at a multiple of that. The primary key decides between two takers at once: the second waits for the first
-- to commit. The row stays locked to the end of this transaction, which stores the job and writes its id
-- (outlast_fill_window_v1); if the job is not stored, the window stays free.
--
-- A window that ends later than this one would, because of a longer period or a clock that was ahead, does not count:
-- so a role that may only enqueue can take no window that swallows more than one window of others. This runs as its
-- owner.
CREATE FUNCTION outlast_take_window_v1(p_key text, p_task text, p_seconds double precision) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO outlast_windows AS w (key, task, job_id, until)
    SELECT p_key, p_task, 0, (floor(date_part('epoch', clock_timestamp()) / p_seconds) + 1) * p_seconds
    ON CONFLICT (key, task) DO UPDATE SET job_id = 0, until = excluded.until
    WHERE w.until <= date_part('epoch', clock_timestamp()) OR w.until > excluded.until OR w.job_id = 0;
    RETURN FOUND;
END
$$;
