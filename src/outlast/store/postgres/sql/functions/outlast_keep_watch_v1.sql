-- Leave the mark of a watcher. What it means, and who may overwrite whose, is the rule of
-- outlast.model.watch: it needs registers that the last writer wins, and nothing more.
--
-- A register is the last value of a sequence. It is written in place, so that a second of each hour costs
-- as much behind a transaction that is held open for a day as behind none: versions of a row would pile up,
-- and each peek of each worker would walk over them. It belongs to no transaction: others see it at once.
-- Of two writers at once the later one stands, and both read that with their next peek. After a crash or
-- a failover it may be an earlier one: that looks like a watcher who has stopped, and another steps in. So no
-- commit waits for it, neither for the disk nor for a standby.
CREATE FUNCTION outlast_keep_watch_v1(p_watch integer, p_mark bigint) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM setval((ARRAY['outlast_watch_1_seq', 'outlast_watch_2_seq', 'outlast_watch_3_seq']
                   ::regclass[])[p_watch], p_mark);
END
$$;
