-- End the session that keeps the row of a gone worker locked, where it waits for a client that does not
-- read.
--
-- The row of a worker that is gone may still be locked: by an exchange that is under way, for a moment;
-- by one whose client does not read its reply, for as long as the connection is believed in. That reply
-- has no reader any more: such a session is ended, and with it its transaction is undone, as if it had
-- never asked. Answers how many were ended, or NULL where the row has changed since it was seen.
--
-- Who holds the row is shown by the row itself (xmax: one transaction, or a list of them; the number of
-- one may look like that of a list). What is ended is certain by more than that: a session of this role
-- in this database that is in the middle of an exchange and waits for its client to read. A worker that
-- lives after all finds its connection broken, and then its row lost; nothing that it was told is undone.
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
    EXCEPTION WHEN OTHERS THEN  -- it is one transaction, or a list that is gone
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
