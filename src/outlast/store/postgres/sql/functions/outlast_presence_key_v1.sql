-- The one key of a worker's lock: of this schema, so that two in one database do not collide, and of
-- one registration. None of what it is made of ever changes.
CREATE FUNCTION outlast_presence_key_v1(p_worker bigint, p_registration text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT hashtextextended(
        store_id::text || ':' || p_worker::text || ':' || coalesce(p_registration, ''), 0::bigint)
    FROM outlast_schema WHERE number = 1
$$;
