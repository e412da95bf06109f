-- Return how many of these jobs, whose rows the caller has locked, fit into p_bytes_max bytes of arguments and
-- checkpoints; with p_is_first at least one.
CREATE FUNCTION outlast_fit_v1(p_rows tid[], p_bytes_max bigint, p_is_first boolean) RETURNS integer
LANGUAGE sql
AS $$
    SELECT greatest(count(*) FILTER (WHERE s.total <= p_bytes_max), p_is_first::integer)::integer
    FROM (SELECT sum(octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0)) OVER (ORDER BY r.n) AS total
          FROM unnest(p_rows) WITH ORDINALITY AS r (row, n) JOIN outlast_jobs j ON j.ctid = r.row) s
$$;
