-- Return the key of this schema's keeper lock: an advisory lock that an exchange holds to its commit while it folds
-- notices or claims jobs of streams, and so does a change of limits (outlast_lock_keeper_v1). So only one session at a
-- time writes streams, permits and limits; each sees all that earlier holders have committed, and none has to lock
-- their rows. An exchange that does not get the lock within some milliseconds leaves this work to the others. Any role
-- that may connect can take it: lock_holders of limits.sql names the sessions that hold it.
CREATE FUNCTION outlast_keeper_lock_v1() RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended('outlast:keeper:' || 'outlast_streams'::regclass::oid, 0::bigint)
$$;
