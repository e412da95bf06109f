-- Return where and since when this database runs: the start of the server, and the path of a table's file, which
-- contains the oid of the database and changes when the table is created again. A copy or a restore (of the server's
-- files, the database, a dump) has another home, or its server was started since. Any role may call it.
CREATE FUNCTION outlast_home_v1() RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()), pg_relation_filepath('outlast_incarnation'))
$$;
