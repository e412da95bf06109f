-- Write the new job of a window into the window's row, which this transaction has locked by outlast_take_window_v1.
-- This runs as its owner (outlast_check_new_v1).
CREATE FUNCTION outlast_fill_window_v1(p_key text, p_task text, p_job bigint) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM outlast_check_new_v1(ARRAY[p_job]);
    UPDATE outlast_windows w SET job_id = p_job WHERE w.key = p_key AND w.task = p_task AND w.job_id = 0;
END
$$;
