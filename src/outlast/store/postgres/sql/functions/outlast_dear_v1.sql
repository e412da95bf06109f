-- Keep floors for an index of instants (run_at, expires_at, hard_deadline, next_tick) whose head was just read from
-- p_from on, if that was dear. p_first: the first live entry that it met; NULL: none. p_read: how many entries
-- of the index this transaction had read before. p_next: the first live entry more than 5 s ahead, where that was read
-- for itself (infinity: none; -infinity: it was not read); NULL: p_first says it. p_of: '', or whose entries alone
-- were read, in an index that has others, too.
--
-- What has left such an index stays in it until a vacuum may take it: behind a transaction that is held open
-- that is never, and each look would walk over all of it. One rule for all heads:
--   * A complete look that has met more than 1,000 entries keeps two floors for this session. The first is the first
--     live entry, or now, and 0.2 s less: entries of instants that have passed are mostly dead. The second is the first
--     live entry that is more than 5 s ahead: what was cancelled before its time is dead there, too. A look reads
--     from the first floor up to 5 s ahead and, where nothing lives there, from the second floor on. It
--     moves them on. A head that is not dear has none.
--   * A floor is a hint. Below the first an entry may come of a transaction that was open for longer than 0.2 s, or
--     from before a step of the clock. The next complete look finds it. That comes when the last one is paid for, a second
--     for each 3,000 entries, after a minute at most. So a floor delays, and never loses; and where it delays at all, a look at
--     what was committed late costs a worker no more than a few thousandths of the time.
--   * Below the second floor any new entry may come: a job that is delayed by less than the first one, a tick.
--     It is no later for that: what is up to 5 s ahead is read without regard to the second floor, so it is
--     found before it is due, by any look in these 5 s. Each worker makes one: if it is told of nothing nearer,
--     it is told to look again in 5 s (outlast_ahead_v1). A dead entry is walked over in its last 5 s, and no longer.
--   * A floor or a time that the clock has stepped behind does not count (outlast_head_v1).
-- Against a concurrent claim, reap or late worker: a floor says where to look, and what is found is judged by its row
-- and lock as ever. The setting is the session's own and is no row: nothing waits for it, and it leaves nothing dead.
CREATE FUNCTION outlast_dear_v1(
    p_index oid, p_from timestamptz, p_first timestamptz, p_now timestamptz, p_read bigint,
    p_next timestamptz DEFAULT NULL, p_of text DEFAULT '') RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_read bigint := pg_stat_get_xact_tuples_returned(p_index) - p_read;
    v_name text := 'outlast.head_' || p_index || p_of;
    v_now double precision := extract(epoch FROM p_now);
    v_next timestamptz := coalesce(
        p_next, CASE WHEN p_first <= p_now + interval '5 seconds' THEN '-infinity' ELSE coalesce(p_first, 'infinity') END);
    v_kept double precision[];
    v_until double precision;
BEGIN
    IF v_read <= 1000 OR NOT isfinite(least(p_first, p_now)) THEN RETURN; END IF;
    IF isfinite(p_from) THEN
        v_kept := current_setting(v_name);
        v_until := v_kept[2];
    ELSE
        v_until := v_now + least(60, greatest(1, v_read / 3000.0));
    END IF;
    PERFORM set_config(v_name, ARRAY[
        extract(epoch FROM least(p_first, p_now))::double precision - 0.2, v_until,
        greatest(extract(epoch FROM v_next)::double precision, CASE WHEN v_next = '-infinity' THEN v_kept[3] END)]::text, false);
END
$$;
