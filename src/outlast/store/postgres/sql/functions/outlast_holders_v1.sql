-- Return the count that each of these permits should have, in one snapshot: the attempts that run under it, and those
-- whose end is noted and not folded. Reads all running jobs, and all notices.
CREATE FUNCTION outlast_holders_v1(p_permits bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(coalesce(h.holders, 0) ORDER BY u.n)
    FROM unnest(p_permits) WITH ORDINALITY AS u (id, n)
    LEFT JOIN (
        SELECT c.permit, sum(c.number)::bigint AS holders
        FROM (SELECT x.permit, 1 AS number
              FROM outlast_jobs j JOIN outlast_streams s ON s.id = j.stream CROSS JOIN LATERAL unnest(s.permits) AS x (permit)
              WHERE j.worker_id IS NOT NULL AND j.stream IS NOT NULL
              UNION ALL
              SELECT x.permit, n.ended
              FROM outlast_notices n JOIN outlast_streams s ON s.id = n.stream
              CROSS JOIN LATERAL unnest(s.permits) AS x (permit) WHERE n.ended <> 0) c
        GROUP BY c.permit) h ON h.permit = u.id
$$;
