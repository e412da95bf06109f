-- Raise all ids by one to two million, if a recovery has emptied outlast_incarnation: the server may have lost the
-- newest ids, and no other row may get one of them. The random part keeps two servers apart if one has lost the jump of
-- the other. Sequences from which no number was drawn stay as they are.
--
-- Recovery ends all sessions, so every session after it calls this in time: a worker before it draws the incarnation, a
-- session that enqueues before its first job. It writes no row, since the transaction of an enqueue may stay open.
--
-- Against other sessions that raise: the table lock lets one raise at a time, and waits for a worker that draws the
-- incarnation or raises numbers (outlast_raise_numbers_v1 has ROW SHARE). Each sequence is read under the lock, and
-- numbers that others draw meanwhile lie within the million, so no sequence is set back. Roles that may only enqueue
-- cannot take this lock themselves.
-- PostgreSQL releases the lock when it rolls back the block; setval is not rolled back. So no transaction waits for the
-- end of another's, and an error leaves no lock behind. An exchange only reads the table, and does not wait.
CREATE FUNCTION outlast_raise_ids_v1() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_ids regclass;
BEGIN
    LOCK TABLE outlast_incarnation IN EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM outlast_incarnation) THEN
        FOR v_ids IN
            SELECT pg_get_serial_sequence(c.oid::regclass::text, 'id')
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id' AND a.attidentity <> ''
            WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'outlast\_%' AND c.relkind = 'r'
        LOOP
            EXECUTE format('SELECT setval(%L, last_value + 1000000 + (random() * 1000000)::bigint) FROM %s WHERE is_called', v_ids, v_ids);
        END LOOP;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'OL001';
EXCEPTION WHEN SQLSTATE 'OL001' THEN
    NULL;
END
$$;
