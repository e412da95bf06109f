-- Return the id of the stream for jobs with these needs (a text that outlast_needs_v1 can read): stream_id in
-- model/limits.py. p_priority: NULL if waiting raises it. p_fair: the tenant, if tenants take turns; otherwise NULL.
-- Depends on its arguments alone.
CREATE FUNCTION outlast_stream_id_v1(p_task text, p_queue text, p_priority integer, p_needs text, p_fair text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT outlast_hash_v1('stream', p_task, p_queue, coalesce(p_priority::text, ''), coalesce((
        SELECT string_agg((e.need ->> 0) || ':' || encode(float8send(coalesce((e.need ->> 3)::double precision, 1)), 'hex')
                          || CASE WHEN e.need ->> 4 = 'true' THEN ':ordered' ELSE '' END, ','
                          ORDER BY ((e.need ->> 0) || ':') COLLATE "C")
        FROM json_array_elements(p_needs::json) AS e (need)), ''), coalesce('t' || p_fair, ''))
$$;
