-- Return the key of this schema's keeper lock: an advisory lock that an exchange keeps to its commit while it folds notices
-- or claims jobs of streams, and a change of limits as well (outlast_lock_keeper_v1). So only one session at a time writes
-- streams, permits and limits, each sees all that those before have committed, and none has to lock a row of them. An
-- exchange that does not get the lock in some milliseconds leaves this work to the others. Any role that may connect can
-- take it: lock_holders of limits.sql names who does.
CREATE FUNCTION outlast_keeper_lock_v1() RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended('outlast:keeper:' || 'outlast_streams'::regclass::oid, 0::bigint)
$$;
