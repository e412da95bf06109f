-- Keep a floor for an index of instants (run_at, expires_at, hard_deadline, next_tick) whose head was just read from
-- p_from on, if that was dear. p_first: the first live entry that it met, up to now; NULL: none. p_read: how many entries
-- of the index this transaction had read before.
--
-- What has left such an index stays in it until a vacuum may take it: behind a transaction that is held open
-- that is never, and each look would walk over all of it. Dead entries are those of instants that have passed, so a
-- look from the instant up to which the last one has come meets none of them. One rule for all heads:
--   * A complete look that has met more than 1,000 entries keeps a floor for this session: the first live
--     entry, or now, and 0.2 s less. Looks from there move it on. A head that is not dear has none.
--   * A floor is a hint. An entry may come below it: of a transaction that was open for longer than that, or from before
--     a step of the clock. The next complete look finds it. That comes when the last one is paid for, a second for each
--     3,000 entries, after a minute at most. So a floor delays, and never loses; and where it delays at all, a look at
--     what was committed late costs a worker no more than a few thousandths of the time.
--   * A floor or a time that the clock has stepped behind does not count (outlast_head_v1).
-- Against a concurrent claim, reap or late worker: a floor says where to look, and what is found is judged by its row
-- and lock as ever. The setting is the session's own and is no row: nothing waits for it, and it leaves nothing dead.
CREATE FUNCTION outlast_dear_v1(
    p_index oid, p_from timestamptz, p_first timestamptz, p_now timestamptz, p_read bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_read bigint := pg_stat_get_xact_tuples_returned(p_index) - p_read;
    v_name text := 'outlast.head_' || p_index;
    v_now double precision := extract(epoch FROM p_now);
    v_until double precision;
BEGIN
    IF v_read <= 1000 OR NOT isfinite(least(p_first, p_now)) THEN RETURN; END IF;
    IF isfinite(p_from) THEN
        v_until := (current_setting(v_name)::double precision[])[2];
    ELSE
        v_until := v_now + least(60, greatest(1, v_read / 3000.0));
    END IF;
    PERFORM set_config(v_name, ARRAY[extract(epoch FROM least(p_first, p_now))::double precision - 0.2, v_until]::text, false);
END
$$;
