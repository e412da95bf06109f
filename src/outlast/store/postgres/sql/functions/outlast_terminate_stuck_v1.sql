-- Terminate the session that keeps the row of a gone worker locked while it waits for a client that does not read.
-- Returns how many sessions were terminated, or NULL if the row has changed since it was seen. The reply no longer has
-- a reader: the end of the session rolls its transaction back, as if the worker had never asked.
--
-- The row's xmax shows the transaction that holds it: one transaction, or the id of a list of transactions (the two
-- kinds of number can look alike). The session is terminated only if it has this role, in this database, and waits in
-- the middle of an exchange for its client to read. If the worker lives after all, it finds its connection broken, and
-- then its row lost; nothing that it was told is undone.
CREATE FUNCTION outlast_terminate_stuck_v1(p_worker bigint, p_beat bigint) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_xmax xid;
    v_holders xid[];
BEGIN
    SELECT w.xmax INTO v_xmax FROM outlast_workers w
    WHERE w.id = p_worker AND w.beat = p_beat AND w.status IN ('active', 'draining');
    IF NOT FOUND THEN RETURN NULL; END IF;
    BEGIN
        SELECT array_agg(m.xid) INTO v_holders FROM pg_get_multixact_members(v_xmax) m;
    EXCEPTION WHEN OTHERS THEN  -- xmax is one transaction, or a list that no longer exists
        v_holders := '{}';
    END;
    RETURN (
        SELECT count(pg_terminate_backend(a.pid))
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.usename = current_user
          AND a.wait_event = 'ClientWrite' AND a.query LIKE '%outlast_exchange_v1%'
          AND a.pid IN (SELECT l.pid FROM pg_locks l
                        WHERE l.locktype = 'transactionid' AND l.granted
                          AND l.transactionid = ANY (v_holders || v_xmax)));
END
$$;
