-- Make every later token larger than p_above. Usually tokens already are: a worker that reconnects hands in the newest
-- token it has seen, and the next one is larger. Then nothing is locked or written.
--
-- A sequence that is not above p_above has lost tokens, as after a failover to a standby that lagged, or after a
-- restore, and other workers may know tokens that were drawn after p_above. So tokens jump above all of these: to the
-- time of day in microseconds, which a store with fewer than a million claims a second cannot have reached, wherever it
-- has run since. If the clock is behind the tokens, it was set back and does not bound the tokens that others know.
-- Then tokens jump beyond p_above by a step of up to 71 minutes. The step grows each second, with the bits 20 to 31 of
-- the clock, so that the next server to jump from p_above jumps farther; a random part of up to half a second keeps two
-- copies apart.
--
-- setval alone could step back below tokens drawn since the sequence was read. Tokens are drawn only under ROW SHARE on
-- the workers' table (an exchange holds its worker's row). EXCLUSIVE waits for all holders of that lock and keeps new
-- ones out, so no token is drawn between the read and the jump. Beats wait for it as well, so this waits for half a
-- second at most, and the caller tries again. Callers must not hold a lock on outlast_workers yet.
CREATE FUNCTION outlast_raise_tokens_v1(p_above bigint) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '500ms'
AS $$
DECLARE
    v_now bigint := date_part('epoch', clock_timestamp()) * 1000000;
    v_target bigint := CASE WHEN v_now > p_above THEN v_now
                            ELSE p_above + 1000000 + (v_now & 4293918720) + (random() * 524288)::bigint END;
BEGIN
    PERFORM FROM outlast_token_seq
    WHERE last_value < p_above OR (last_value = p_above AND NOT is_called);
    IF NOT FOUND THEN RETURN; END IF;
    LOCK TABLE outlast_workers IN EXCLUSIVE MODE;
    PERFORM setval('outlast_token_seq', v_target) FROM outlast_token_seq WHERE last_value <= p_above;
END
$$;
