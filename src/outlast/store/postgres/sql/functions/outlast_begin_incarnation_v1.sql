-- Draw the incarnation where there is none of this home (outlast_home_v1): the server was started or has
-- recovered from a crash, another one took over, or this is a copy, or was restored or made just now.
-- Tokens that were drawn may be unknown here then: the tail of the log may be lost (a standby that lags, or
-- synchronous_commit = off), and a copy knows nothing of what came after it. So before it is drawn no
-- exchange claims anything, and with it tokens jump (outlast_raise_tokens_v1), as if the next one was lost.
-- The jump is not part of the transaction: it is done when others can see the row. Of several at once one
-- draws the row and the others wait for its commit; should that break off, the next one jumps again.
CREATE FUNCTION outlast_begin_incarnation_v1() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM outlast_incarnation i WHERE i.home = outlast_home_v1()) THEN RETURN; END IF;
    INSERT INTO outlast_incarnation AS i (home) VALUES (outlast_home_v1())
    ON CONFLICT (one) DO UPDATE SET home = excluded.home, id = excluded.id WHERE i.home <> excluded.home;
    IF FOUND THEN
        PERFORM outlast_raise_tokens_v1(last_value + 1) FROM outlast_token_seq;
    END IF;
END
$$;
