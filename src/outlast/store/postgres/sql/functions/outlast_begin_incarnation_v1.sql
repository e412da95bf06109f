-- Draw the incarnation of a database that has none: after a crash, a failover or a restore, of its files or
-- of a dump.
-- The tail of the log may be lost then, and with it claims and the tokens that they drew (a standby
-- that lags, or synchronous_commit = off). So before it is drawn no exchange claims anything, and with
-- it tokens jump: above the time of day in microseconds, which a store of less than a million claims a
-- second cannot have reached by then, neither here nor on another server that was the primary since.
-- The jump is not part of the transaction: it is done when others can see the row. Of several at once one
-- draws the row and the others wait for its commit; should that break off, the next one jumps again.
CREATE FUNCTION outlast_begin_incarnation_v1() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM outlast_incarnation i WHERE i.home = i.tableoid) THEN RETURN; END IF;
    INSERT INTO outlast_incarnation (home) VALUES ('outlast_incarnation'::regclass)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM outlast_raise_tokens_v1(greatest(
            last_value + 1000000, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
        FROM outlast_token_seq;
    END IF;
END
$$;
