-- Keep a floor for an index of instants (run_at, expires_at, hard_deadline, next_tick) that was just read from p_from on,
-- if that was slow. p_first: the first live entry that was met; NULL: none. p_read: how many entries of the index this
-- transaction had read before.
--
-- What has left such an index stays in it until a vacuum may take it: behind a transaction that is held open
-- that is never, and each look would walk over all of it. One rule for all of them:
--   * A look from the first entry on that has met more than 1,000 keeps a floor for this session: the first live entry,
--     or now, and 0.2 s less. Later looks read from there, and move it on. An index that is quick to read has none.
--   * A floor is a hint. Below it an entry may come of a transaction that was open for longer than 0.2 s, or
--     from before a step of the clock. The next look from the first entry on finds it. That comes when the last one is
--     paid for, a second for each 3,000 entries, after a minute at most. So a floor delays, and never loses; and such
--     looks take a session no more than a few thousandths of the time.
--   * A floor that the clock has stepped behind does not count (outlast_read_from_v1).
-- A look reads a minute ahead and no further, since workers look again by then: what was cancelled long before its
-- time is not met.
-- Against a concurrent claim, reap or late worker: a floor says where to look, and what is found is judged by its row
-- and lock as ever. The setting is the session's own and is no row: nothing waits for it, and it leaves nothing dead.
CREATE FUNCTION outlast_keep_floor_v1(
    p_index oid, p_from timestamptz, p_first timestamptz, p_now timestamptz, p_read bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_read bigint := pg_stat_get_xact_tuples_returned(p_index) - p_read;
    v_name text := 'outlast.floor_' || p_index;
    v_now double precision := extract(epoch FROM p_now);
    v_until double precision := v_now + least(60, greatest(1, v_read / 3000.0));
BEGIN
    IF v_read <= 1000 OR NOT isfinite(least(p_first, p_now)) THEN RETURN; END IF;
    IF isfinite(p_from) THEN v_until := (current_setting(v_name)::double precision[])[2]; END IF;
    PERFORM set_config(
        v_name, ARRAY[extract(epoch FROM least(p_first, p_now))::double precision - 0.2, v_until]::text, false);
END
$$;
