-- Of jobs that a claim has locked, those that it has made run, in their order. The others have expired: after
-- the exchange had ended what was expired, or because another session held the row then. A claim changes
-- no such row, and the next exchange, or a sweep, ends it.
--
-- Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1, and only where a claim has changed fewer rows
-- than it had locked. The caller holds all of these rows, so that one of them runs if and only if it made it run.
CREATE FUNCTION outlast_begun_v1(
    p_ids bigint[], p_positions bigint[], OUT begun_ids bigint[], OUT begun_positions bigint[])
LANGUAGE plpgsql
AS $$
BEGIN
    SELECT array_agg(u.id ORDER BY u.ord), array_agg(u.position ORDER BY u.ord)
    INTO begun_ids, begun_positions
    FROM unnest(p_ids, p_positions) WITH ORDINALITY AS u (id, position, ord)
    JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id]) AND j.state = 'running';
END
$$;
