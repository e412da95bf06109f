-- All locks of outlast_locks_v1 as texts, KEY/ROLE, as of now.
CREATE FUNCTION outlast_presence_held_v1() RETURNS text[]
LANGUAGE sql VOLATILE
AS $$
    SELECT ARRAY(SELECT l.key::text || '/' || l.role::text FROM outlast_locks_v1() l)
$$;
