-- Draw the incarnation where there is none of this home (outlast_home_v1): the server was started or has
-- recovered from a crash, another one took over, or this is a copy, or was restored or made just now.
-- Tokens that were drawn may be unknown here then: the tail of the log may be lost (a standby that lags, or
-- synchronous_commit = off), and a copy knows nothing of what came after it. So before it is drawn no
-- exchange claims anything, and with it tokens jump: above the time of day in microseconds, which a store of
-- less than a million claims a second cannot have reached by then, wherever it ran since. Where the clock is
-- behind the tokens, it was set back, and says nothing of other copies: a step of up to 71 minutes,
-- by chance, keeps two of them apart.
-- The jump is not part of the transaction: it is done when others can see the row. Of several at once one
-- draws the row and the others wait for its commit; should that break off, the next one jumps again.
CREATE FUNCTION outlast_begin_incarnation_v1() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_now bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    IF EXISTS (SELECT FROM outlast_incarnation i WHERE i.home = outlast_home_v1()) THEN RETURN; END IF;
    INSERT INTO outlast_incarnation AS i (home) VALUES (outlast_home_v1())
    ON CONFLICT (one) DO UPDATE SET home = excluded.home, id = excluded.id WHERE i.home <> excluded.home;
    IF FOUND THEN
        PERFORM outlast_raise_tokens_v1(
            CASE WHEN v_now > last_value THEN v_now
                 ELSE last_value + 1000000 + (random() * 4294967296)::bigint END)
        FROM outlast_token_seq;
    END IF;
END
$$;
