-- What names this run of this database: a lock taken in another one proves nothing here. A server that
-- is stopped and started has another start time. One that restarts by itself, after a process of its
-- own was killed, and a standby that is promoted keep theirs, and have lost the row of the unlogged
-- table, which is drawn again. A database that was dropped and restored has another oid. NULL: in
-- recovery, where nothing can be written and locks are not those of the primary, and until the row is
-- drawn (outlast_begin_incarnation_v1). Reads only.
CREATE FUNCTION outlast_incarnation_v1() RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF pg_is_in_recovery() THEN RETURN NULL; END IF;
    RETURN (SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()), d.oid, i.id)
            FROM outlast_incarnation i JOIN pg_database d ON d.datname = current_database()
            WHERE i.home = i.tableoid);
END
$$;
