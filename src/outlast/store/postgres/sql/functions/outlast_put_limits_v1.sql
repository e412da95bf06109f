-- Write limits: the code's declaration, the values that a person set, and the values in force (running to per), which
-- count from then on. The caller has the keeper lock, and has read the limits' rows since it has that lock. So every
-- exchange that has blocked streams by their permits as they were has committed: the search for blocked streams sees
-- them, and leaves a notice for each such permit. A lowered limit stops no running attempt.
--
-- Where a rate changes, the starts that its permits have ahead of them (tat) stay the same in number, and become none
-- if there was no rate, or is none now.
--
-- Where a limit no longer counts by tenant, its streams may get jobs of other tenants, so they no longer name one
-- (outlast_make_streams_v1).
CREATE FUNCTION outlast_put_limits_v1(
    p_names text[], p_declared text[], p_own text[], p_running integer[], p_spacing double precision[],
    p_burst double precision[], p_per text[]) RETURNS void
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
BEGIN
    UPDATE outlast_permits p
    SET tat = least(1e15, greatest(v_now, p.touched_at)
                          + (p.tat - greatest(v_now, p.touched_at)) * coalesce(u.spacing / l.spacing, 0))
    FROM unnest(p_names, p_spacing) AS u (name, spacing) JOIN outlast_limits l ON l.name = u.name
    WHERE p.name = u.name AND l.spacing IS DISTINCT FROM u.spacing AND p.tat > greatest(v_now, p.touched_at);
    UPDATE outlast_streams s SET tenant = NULL
    WHERE s.tenant IS NOT NULL
      AND EXISTS (SELECT FROM unnest(p_names, p_per) AS u (name, per) JOIN outlast_limits l ON l.name = u.name
                  WHERE l.per = 'tenant' AND u.per IS DISTINCT FROM l.per)
      AND EXISTS (SELECT FROM unnest(s.permits) AS k (id) JOIN outlast_permits p ON p.id = ANY (ARRAY[k.id])
                  WHERE p.name = ANY (p_names) AND p.key = s.tenant);
    INSERT INTO outlast_limits AS l (name, declared, own, running, spacing, burst, per)
    SELECT u.* FROM unnest(p_names, p_declared, p_own, p_running, p_spacing, p_burst, p_per) AS u
    ON CONFLICT (name) DO UPDATE
    SET declared = excluded.declared, own = excluded.own, running = excluded.running, spacing = excluded.spacing,
        burst = excluded.burst, per = excluded.per;
    INSERT INTO outlast_notices (permit)
    SELECT p.id FROM unnest(p_names) AS u (name) JOIN outlast_permits p ON p.name = u.name
    WHERE EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id);
END
$$;
