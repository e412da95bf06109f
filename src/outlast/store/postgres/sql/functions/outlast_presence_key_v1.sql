-- Return the key of a worker's lock. It is unique to this schema, so that two stores in one database do not collide,
-- and to one registration, and it never changes. p_store is the store's id from outlast_schema, which this function
-- does not read itself: a look at a thousand workers, into which the planner inlines this call, reads it once.
CREATE FUNCTION outlast_presence_key_v1(p_store uuid, p_worker bigint, p_registration text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended(
        p_store::text || ':' || p_worker::text || ':' || coalesce(p_registration, ''), 0::bigint)
$$;
