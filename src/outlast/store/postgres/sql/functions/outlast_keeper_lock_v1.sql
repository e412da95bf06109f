-- Return the key of this schema's keeper lock: an advisory lock that an exchange tries, and keeps to its commit, before it
-- folds notices or claims jobs of streams (outlast_prepare_claim_v1); changes of limits wait for it
-- (outlast_lock_keeper_v1). So only one session at a time writes streams and permits, each sees all that those before
-- have committed, and none has to lock a row of them. An exchange that does not get the lock leaves this work to the one
-- that has it, and waits for no one. Who may connect can take it as well: lock_holders of limits.sql names who does.
CREATE FUNCTION outlast_keeper_lock_v1() RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended('outlast:keeper:' || 'outlast_streams'::regclass::oid, 0::bigint)
$$;
