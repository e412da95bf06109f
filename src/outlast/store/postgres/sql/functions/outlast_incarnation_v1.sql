-- Return the name of this run of this database; a lock that was taken in another run proves nothing here. The home
-- (outlast_home_v1) changes when the server starts, and when a database is dropped and restored. A server that restarts
-- by itself, after one of its processes was killed, and a standby that is promoted keep their start time; but they have
-- lost the row of the unlogged table, so a new one is drawn. NULL in recovery, where nothing can be written and locks
-- are not those of the primary, and until the row is drawn (outlast_begin_incarnation_v1). Reads only.
CREATE FUNCTION outlast_incarnation_v1() RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF pg_is_in_recovery() THEN RETURN NULL; END IF;
    RETURN (SELECT i.home || '/' || i.id FROM outlast_incarnation i WHERE i.home = outlast_home_v1());
END
$$;
