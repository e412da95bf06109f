-- Check once more the permits that this transaction has checked, after all its starts are counted. If a permit has room
-- for a stream that it blocks, leave a notice, and return true; if only time is missing, or a place that is kept for
-- another stream, write when the permit opens (opens_at). That keeps the rule that no permit with room blocks a stream
-- unseen: the caller has the keeper lock, so after this check no other session counts under these permits or blocks a
-- stream by them.
--
-- A stream that was opened but that no worker claims (its queue is paused, no worker serves it) holds no permit: the
-- notice is left all the same, and the next fold opens the streams behind it. Of streams that need different costs of a
-- rate, the first by rank and turn decides: while it waits for the rate, the others wait behind it, since low costs
-- would otherwise delay a high one for good. (A cost above the burst can never start, so it blocks no other job.)
CREATE FUNCTION outlast_leave_permits_v1(p_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
BEGIN
    WITH look AS MATERIALIZED (
        SELECT t.id, t.row, t.opens_at, t.free > 0 AND b.wait <= 1e-9 AND t.held IS NULL AS room,
               CASE WHEN b.wait IS NOT NULL
                    THEN coalesce(t.held, CASE WHEN t.free > 0 AND b.wait > 1e-9 THEN v_now + b.wait
                                           WHEN t.free <= 0 THEN t.kept END) END AS opens
        FROM (SELECT p.id, p.row, p.opens_at, l.spacing, l.burst, greatest(0, p.tat - greatest(v_now, p.touched_at)) AS ahead,
                     nullif(greatest(p.held_until, l.held_until, v_now), v_now) AS held,
                     least(1000000000, coalesce(p.own_running, l.running) - p.used - (k.until IS NOT NULL)::integer) AS free,
                     k.until AS kept
              FROM (SELECT u AS id FROM unnest(p_ids) AS u  -- most permits block no stream
                    WHERE (SELECT s.blocked FROM outlast_streams s WHERE s.blocked = u
                           ORDER BY s.blocked DESC, s.rank DESC, s.turn DESC LIMIT 1) IS NOT NULL OFFSET 0) u
              CROSS JOIN LATERAL (SELECT o.ctid AS row, o.* FROM outlast_permits o WHERE o.id = u.id ORDER BY o.id DESC, o.version DESC LIMIT 1) p
              CROSS JOIN LATERAL (
                  SELECT CASE WHEN p.kept_for IS NOT NULL AND p.kept_until > greatest(v_now, p.touched_at) THEN p.kept_until END AS until) k
              JOIN outlast_limits l ON l.name = coalesce(p.name, '')) t  -- coalesce: permits are read by id alone
        LEFT JOIN LATERAL (
            SELECT CASE WHEN t.spacing IS NULL THEN 0
                        ELSE greatest(0, t.ahead + c.cost * t.spacing - t.burst * t.spacing) END AS wait
            FROM (SELECT s.rank, s.turn, s.blocked, s.costs[array_position(s.permits, t.id)] AS cost FROM outlast_streams s
                  WHERE s.blocked = t.id) c
            WHERE t.spacing IS NULL OR c.cost <= t.burst
            ORDER BY c.blocked, c.rank, c.turn LIMIT CASE WHEN t.held IS NOT NULL OR t.free > 0 OR t.kept IS NOT NULL THEN 1 ELSE 0 END) b ON true
    ), timed AS (
        UPDATE outlast_permits p SET version = nextval('outlast_turn_seq'), opens_at = k.opens
        FROM look k WHERE p.ctid = k.row AND k.opens IS DISTINCT FROM k.opens_at
    )
    INSERT INTO outlast_notices (permit) SELECT k.id FROM look k WHERE k.room;
    RETURN FOUND;
END
$$;
