-- Return the channel on which this store's workers listen. It is named by the oid of the store's first table, so that
-- several stores in one database do not hear each other. The planner folds it to a constant.
CREATE FUNCTION outlast_channel_v1() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT 'outlast_' || 'outlast_schema'::regclass::oid::text
$$;
