-- Return the hash of these texts, from which the ids of permits and streams are computed: 63 bits, as _hashed in
-- model/limits.py does. Depends on its arguments alone.
CREATE FUNCTION outlast_hash_v1(VARIADIC p_parts text[]) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT (('x' || encode(substr(sha256(string_agg(convert_to(u.part, 'UTF8'), decode('00', 'hex') ORDER BY u.n)), 1, 8),
                           'hex'))::bit(64) >> 1)::bigint
    FROM unnest(p_parts) WITH ORDINALITY AS u (part, n)
$$;
