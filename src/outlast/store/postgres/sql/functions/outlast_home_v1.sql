-- Where and since when this database runs: the start of the server, and the file of a table, whose path has
-- the oid of the database and is another one for a table that was made again. What is copied or restored
-- (the server's files, the database, a dump) is elsewhere, or the server was started since. Every role may ask.
CREATE FUNCTION outlast_home_v1() RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()), pg_relation_filepath('outlast_incarnation'))
$$;
