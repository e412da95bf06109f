-- Return the channel on which this store's workers listen, named by the oid of its first table. If several schemas of
-- one database each hold a store, jobs of one wake no worker of another, and answers of one are not taken for
-- another's. The planner folds it to a constant.
CREATE FUNCTION outlast_channel_v1() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT 'outlast_' || 'outlast_schema'::regclass::oid::text
$$;
