-- Leave the mark of a watcher: outlast.model.watch needs registers in which the last write wins.
--
-- A register is the last value of a sequence, which is written in place: a write each second costs the same behind a
-- transaction that is held open for a day, while versions of a row would pile up. A sequence is not transactional:
-- others see the value at once, and of two writers the later value stays. After a crash or a failover an earlier value
-- may return: that looks like a watcher that has stopped, and another takes over. So the commit waits for no disk and
-- no standby.
CREATE FUNCTION outlast_keep_watch_v1(p_watch integer, p_mark bigint) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM setval((ARRAY['outlast_watch_1_seq', 'outlast_watch_2_seq', 'outlast_watch_3_seq']
                   ::regclass[])[p_watch], p_mark);
END
$$;
