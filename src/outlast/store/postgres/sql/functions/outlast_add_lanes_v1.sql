-- Append these lanes, except lanes that were appended within the last hour. known: another transaction has committed
-- rows for all of them, so the caller may store jobs in them for a while without asking again. (A row of its own
-- transaction may be rolled back, and a later job would then stand in a lane that no claim reads.)
--
-- Nothing waits: the table has no unique key, so two transactions that do not see each other both append. A row of the
-- last hour stays for at least a day (outlast_thin_lanes_v1), so a client may rely on it for minutes, in a transaction
-- that stays open for hours. This runs as its owner, for roles to which it is granted.
--
-- Each session calls this before its first job, without lanes if it needs none: after a recovery ids jump first
-- (outlast_raise_ids_v1). A standby refuses the first statement, so no session there relies on this call later.
CREATE FUNCTION outlast_add_lanes_v1(p_tasks text[], p_queues text[], p_priorities smallint[], OUT known boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT a.task, a.queue, a.priority,
               (SELECT l.added_by FROM outlast_lanes l
                WHERE l.task = a.task AND l.queue = a.queue AND l.priority = a.priority
                  AND l.added_at > date_part('epoch', statement_timestamp()) - 3600
                ORDER BY l.added_at LIMIT 1) AS added_by
        FROM (SELECT DISTINCT u.task, u.queue, u.priority FROM unnest(p_tasks, p_queues, p_priorities) AS u (task, queue, priority)) a
    ), added AS (
        INSERT INTO outlast_lanes (task, queue, priority)
        SELECT a.task, a.queue, a.priority FROM asked a WHERE a.added_by IS NULL
    )
    SELECT bool_and(a.added_by IS NOT NULL AND a.added_by IS DISTINCT FROM pg_current_xact_id_if_assigned())
    INTO known FROM asked a;
    IF NOT EXISTS (SELECT FROM outlast_incarnation) THEN PERFORM outlast_raise_ids_v1(); END IF;
END
$$;
