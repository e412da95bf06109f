-- Judge a worker's presence: the advisory lock that a live worker's session holds and that is released with the
-- session. This compares the worker's row, which says INCARNATION/ROLE, with the locks of the present incarnation.
--
-- Whose lock counts: every role that may connect sees all advisory locks in pg_locks, with their keys, and may take
-- them: a session that waits for the key of a worker gets it the moment the worker dies. So a lock counts only if the
-- session that holds it has the role that the worker's row names. A role without rights on the tables is not that role,
-- and cannot write the row. Every role sees the role of a session (pg_stat_get_activity hides what a session does and
-- since when, but not its role), and it stays the same for as long as the session lives. The process id would not do:
-- it may be issued again, and the start of the process is hidden from other roles.
--
-- The orders of events that might go wrong:
--   * The worker reconnects as the same role: its lock counts from the moment it has it, before the row is written, and
--     the role on the row stays true. As another role: its lock counts once the row is committed, and is absent in a
--     look before that. A single look finds no worker gone; a reap in that instant marks the worker lost, and the
--     worker finds that out as after any reap.
--   * A session of another role has the key before the worker (it waited while the worker's session was cut): the
--     worker learns whose session it is, reports it, takes its presence off its row and tries again with each
--     heartbeat. Unknown presence proves nothing, so beats decide. Until then the worker is absent and beats: no worker
--     is found gone by absence alone.
--   * A session of another role has the key after a crash, a restart or a failover: the row names another incarnation,
--     for which the answer is neither `held` nor `absent`, and only a worker that has its lock writes the present one.
--   * The worker dies, and a session of another role has the key: absent, as if the lock were free.
--   * A worker is late under an id that was issued again, after the store was set back: the key belongs to its
--     registration, and so does the update of the row. The late worker takes a lock for which no look asks.
--
-- Sessions are read after the rows, as locks are: a session that holds a lock existed before the row that names it was
-- committed.
CREATE FUNCTION outlast_presence_v1(
    p_store uuid, p_worker bigint, p_registration text, p_presence text, p_here text, p_held jsonb) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN starts_with(p_presence, p_here || '/') IS NOT TRUE THEN 'unknown'
                WHEN p_held ? (outlast_presence_key_v1(p_store, p_worker, p_registration)::text
                               || substr(p_presence, length(p_here) + 1)) THEN 'held'
                ELSE 'absent' END
$$;
