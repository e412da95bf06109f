-- The channel on which this store's workers listen, named by its first table: of several stores in one database, each in
-- a schema of its own, none is woken by another one's jobs, nor takes another one's answers for its own. Planned as a constant.
CREATE FUNCTION outlast_channel_v1() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT 'outlast_' || 'outlast_schema'::regclass::oid::text
$$;
