-- Return all locks of outlast_locks_v1 as of now, each under KEY/ROLE. A look asks for the lock of each worker, and
-- finds it here in as many steps as a binary search takes.
CREATE FUNCTION outlast_presence_held_v1() RETURNS jsonb
LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(jsonb_object_agg(l.key::text || '/' || l.role::text, true), '{}')
    FROM outlast_locks_v1() l
$$;
