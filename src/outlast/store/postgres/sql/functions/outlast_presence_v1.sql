-- What a look shows of a worker's presence, a lock that a live worker's session holds, and that is gone as
-- soon as the session is: from its row, where INCARNATION/ROLE stands, and from the database that is here
-- now.
--
-- Whose a lock is. Every role that may connect sees all advisory locks in pg_locks, with their keys, and
-- may take them: a session that waits for the key of a worker has it the moment the worker
-- dies. So a lock counts only where the session that holds it is of the role that the worker's row
-- names. A role without rights on the tables is not that role, and cannot write the row. The role of a
-- session is shown to every role (pg_stat_get_activity hides what a session does and since when, not
-- whose it is), and stays the same for as long as the session lives. The number of its process would not
-- do: it may be issued again, and when that process started is hidden from other roles.
--
-- The orders in which that might go wrong.
--   The worker reconnects as the same role: its lock counts from the moment it has it, before
--     the row is written, and the role on the row stays true. As another role: its lock counts once the
--     row is committed, and is absent in a look before that. One look makes no worker gone; a reap in that
--     instant marks the worker lost, which finds that out as after any reap.
--   A stranger has the key before the worker (its session waited while the worker's was cut): the worker is
--     told whose session it is, says so, takes its presence off its row and tries again with each heartbeat.
--     Unknown proves nothing, so its beats decide. Until then it is absent and beats: no worker is gone
--     by absence alone.
--   A stranger has the key after a crash, a restart or a failover: the row names another incarnation, under
--     which no worker is held or absent, and only a worker that has its lock writes the present one.
--   The worker dies, and a stranger has the key: absent, as if the lock were free.
--   A worker is late under an id that was issued again, after the store was set back: the key is of
--     its registration, and so is the update of the row. It takes a lock that no look asks for.
-- Sessions are read after the rows, as locks are: one that holds a lock was there before the row that
-- reports it was committed.
CREATE FUNCTION outlast_presence_v1(
    p_store uuid, p_worker bigint, p_registration text, p_presence text, p_here text, p_held jsonb) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN starts_with(p_presence, p_here || '/') IS NOT TRUE THEN 'unknown'
                WHEN p_held ? (outlast_presence_key_v1(p_store, p_worker, p_registration)::text
                               || substr(p_presence, length(p_here) + 1)) THEN 'held'
                ELSE 'absent' END
$$;
