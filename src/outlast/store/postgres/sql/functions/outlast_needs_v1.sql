-- Return the permits that a job needs, from the text on its row: permits and costs, names of limits, and keys, each in
-- the same order. permits is NULL if the text cannot be read, or if a permit's id does not follow from its name and
-- key, so that no job makes another's permit: such a job does not start, and stops no other. A cost below the least
-- that a program may give counts as that least cost: the arithmetic of a claim raises an error where a number
-- underflows. Called when a stream or a permit is made, and not for each job.
CREATE FUNCTION outlast_needs_v1(
    p_needs text, OUT permits bigint[], OUT names text[], OUT keys text[], OUT costs double precision[])
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    SELECT coalesce(array_agg((e.need ->> 0)::bigint ORDER BY e.n), '{}'), coalesce(array_agg(e.need ->> 1 ORDER BY e.n), '{}'),
           coalesce(array_agg(coalesce(e.need ->> 2, '') ORDER BY e.n), '{}'),
           coalesce(array_agg(CASE WHEN (e.need ->> 3)::double precision > 0 THEN greatest((e.need ->> 3)::double precision, 1e-6)
                                   ELSE coalesce((e.need ->> 3)::double precision, 1) END ORDER BY e.n), '{}')
    INTO permits, names, keys, costs
    FROM json_array_elements(p_needs::json) WITH ORDINALITY AS e (need, n);
    IF p_needs IS NULL OR array_position(permits, NULL) IS NOT NULL OR array_position(names, NULL) IS NOT NULL
        OR cardinality(permits) > 100 OR NOT 0 <= ALL (costs) OR NOT 1e9 >= ALL (costs)
        OR cardinality(permits) <> (SELECT count(DISTINCT u) FROM unnest(permits) AS u)
        OR EXISTS (SELECT FROM unnest(permits, names, keys) AS u (id, name, key) WHERE u.id <> outlast_hash_v1('permit', u.name, u.key))
    THEN
        permits := NULL;
    END IF;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    permits := NULL;
END
$$;
