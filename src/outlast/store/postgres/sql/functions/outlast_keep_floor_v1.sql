-- Keep a floor for an index of instants (run_at, expires_at, hard_deadline, next_tick) that was just read from p_from
-- on, if the read was slow. p_first: the first live entry that the read met; NULL: none. p_read: how many entries of
-- the index this transaction had read before.
--
-- Dead entries stay in such an index until vacuum removes them, which it cannot do behind an open transaction, and each
-- look would walk over all of them. One rule serves all these indexes:
--   * If a look from the first entry on has met more than 1,000 entries, this session keeps a floor: the first live
--     entry or now, if that is earlier, less 0.2 s. Later looks read from there, and move it on. An index that is quick
--     to read has no floor.
--   * A floor is a hint. An entry may lie below it if its transaction was open for longer than 0.2 s, or if it is from
--     before a step of the clock. The next look from the first entry on finds it. That look comes one second later for
--     each 3,000 entries that the last one read, after a minute at most. So a floor delays an entry and never loses it,
--     and these looks take no more than a few thousandths of a session's time.
--   * A floor ahead of the clock, after a step back, does not count (outlast_read_from_v1). A look reads a minute ahead
--     and no further, since workers look again by then; so it does not meet jobs that were cancelled long before their
--     time.
--
-- Against a concurrent claim, reap or late worker: a floor says where to read from, and each row found is still judged
-- by its content and its lock. The floor is a setting of the session and not a row: nothing waits for it, and it leaves
-- no dead rows.
CREATE FUNCTION outlast_keep_floor_v1(
    p_index oid, p_from double precision, p_first double precision, p_now double precision, p_read bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_read bigint := pg_stat_get_xact_tuples_returned(p_index) - p_read;
    v_name text := 'outlast.floor_' || p_index;
    v_until double precision := p_now + least(60, greatest(1, v_read / 3000.0));
BEGIN
    IF v_read <= 1000 OR p_first = '-infinity' THEN RETURN; END IF;
    IF p_from > '-infinity' THEN v_until := (current_setting(v_name)::double precision[])[2]; END IF;
    PERFORM set_config('outlast.floors', 'kept', false);  -- only then does outlast_exchange_v1 ask for floors
    PERFORM set_config(v_name, ARRAY[least(p_first, p_now) - 0.2, v_until]::text, false);
END
$$;
