-- Make every later token larger than p_above. Mostly they are already: a worker that reconnects hands
-- in the newest token it has seen, and the next one is larger. Then nothing is locked or written.
--
-- A sequence that is not above it has lost tokens, as after a failover to a standby that lagged, or a
-- restore, and others may know tokens that were drawn after p_above. So tokens jump above all of these: to
-- the time of day in microseconds, which a store of less than a million claims a second cannot have
-- reached by then, wherever it ran since. Where the clock is behind the tokens, it was set back, and says
-- nothing of what others know: then tokens jump beyond p_above by a step of up to 71 minutes, by chance,
-- which also keeps two copies apart.
--
-- setval could step back below what was drawn since the look. Tokens are drawn only under ROW SHARE on the
-- workers' table (an exchange holds its worker's row); EXCLUSIVE waits for all who hold it and keeps new
-- ones out, so nothing is drawn between look and jump. Beats wait for it, too: so it waits half a second at
-- most, and the caller tries again. Callers must hold no lock on outlast_workers yet.
CREATE FUNCTION outlast_raise_tokens_v1(p_above bigint) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '500ms'
AS $$
DECLARE
    v_now bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    v_target bigint := CASE WHEN v_now > p_above THEN v_now
                            ELSE p_above + 1000000 + (random() * 4294967296)::bigint END;
BEGIN
    PERFORM FROM outlast_token_seq
    WHERE last_value < p_above OR (last_value = p_above AND NOT is_called);
    IF NOT FOUND THEN RETURN; END IF;
    LOCK TABLE outlast_workers IN EXCLUSIVE MODE;
    PERFORM setval('outlast_token_seq', v_target) FROM outlast_token_seq WHERE last_value <= p_above;
END
$$;
