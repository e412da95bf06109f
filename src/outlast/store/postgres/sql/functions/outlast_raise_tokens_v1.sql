-- Make every later token larger than p_above. Mostly they are already: a worker that reconnects hands
-- in the newest token it has seen, and the next one is larger. Then nothing is locked or written.
--
-- A sequence that is behind by at most p_drawn tokens, as after a failover, is drawn forward: nextval
-- never steps back, even if more is drawn beside it. ROW SHARE on the workers' table, as an exchange holds
-- it, keeps this away from the jump below, and from nothing else.
--
-- One that is further behind, as after a restore, jumps by setval, which could step back below what was
-- drawn since the look. Tokens are drawn only under ROW SHARE (an exchange holds its worker's row);
-- EXCLUSIVE waits for all who hold it and keeps new ones out, so nothing is drawn between look and
-- jump. Beats wait for it, too: so it waits half a second at most, and the caller tries again.
-- Callers must hold no lock on outlast_workers yet.
CREATE FUNCTION outlast_raise_tokens_v1(p_above bigint, p_drawn bigint DEFAULT 100000) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '500ms'
AS $$
DECLARE
    v_behind bigint;
BEGIN
    SELECT p_above - last_value + CASE WHEN is_called THEN 0 ELSE 1 END INTO v_behind
    FROM outlast_token_seq;
    IF v_behind <= 0 THEN RETURN; END IF;
    IF v_behind <= p_drawn THEN
        LOCK TABLE outlast_workers IN ROW SHARE MODE;
        PERFORM count(nextval('outlast_token_seq')) FROM generate_series(1, v_behind);
    ELSE
        LOCK TABLE outlast_workers IN EXCLUSIVE MODE;
        PERFORM setval('outlast_token_seq', p_above) FROM outlast_token_seq
        WHERE last_value <= p_above;
    END IF;
END
$$;
