-- The one key of a worker's lock: of this schema, so that two in one database do not collide, and of
-- one registration. None of what it is made of ever changes. p_store is the store's id, from outlast_schema: it is
-- not read here, so that a look at a thousand workers, whose planner puts this in place of the call, reads it once.
CREATE FUNCTION outlast_presence_key_v1(p_store uuid, p_worker bigint, p_registration text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended(
        p_store::text || ':' || p_worker::text || ':' || coalesce(p_registration, ''), 0::bigint)
$$;
