-- Return the key of this schema's keeper lock: an advisory lock that an exchange tries, and keeps to its commit, before it
-- does deferred work or claims jobs of streams (outlast_exchange_v1). So one session at a time does: no other writes
-- streams, or what is counted under permits, and each of them sees all that those before have committed. An exchange
-- that does not get the lock leaves this work to the one that has it, and waits for no one. Who may connect can take it
-- as well: lock_holders of limits.sql names who does.
CREATE FUNCTION outlast_keeper_lock_v1() RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended('outlast:keeper:' || 'outlast_streams'::regclass::oid, 0::bigint)
$$;
