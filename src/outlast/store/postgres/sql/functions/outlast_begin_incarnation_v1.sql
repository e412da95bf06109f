-- Draw an incarnation if the database has none for its present home (outlast_home_v1): the server was started or has
-- recovered from a crash, another server took over, or this database is a copy or was just restored or created.
--
-- In these cases tokens may have been drawn that the database does not know of: the tail of the WAL may be lost (a
-- standby that lags, or synchronous_commit = off), and a copy lacks all tokens drawn since it was made. So no exchange
-- claims a job before the incarnation is drawn. Tokens jump with it (outlast_raise_tokens_v1), and ids before it, if a
-- recovery has emptied the table (outlast_raise_ids_v1). The jumps are not transactional: they are done before others
-- can see the row. If several sessions try at once, one inserts the row and the others wait for its commit; if it rolls
-- back, the next one jumps again.
--
-- A copy may have come without its lanes, so these are read from its jobs (outlast_thin_lanes_v1).
CREATE FUNCTION outlast_begin_incarnation_v1() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM outlast_incarnation i WHERE i.home = outlast_home_v1()) THEN RETURN; END IF;
    PERFORM outlast_raise_ids_v1();
    INSERT INTO outlast_incarnation AS i (home) VALUES (outlast_home_v1())
    ON CONFLICT (one) DO UPDATE SET home = excluded.home, id = excluded.id WHERE i.home <> excluded.home;
    IF FOUND THEN
        PERFORM outlast_raise_tokens_v1(last_value + 1) FROM outlast_token_seq;
        PERFORM outlast_thin_lanes_v1();
    END IF;
END
$$;
