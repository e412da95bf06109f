-- Correct the counts of permits that block streams and were last written p_settled seconds ago, if they differ from
-- the number of attempts that run under them. Returns the corrected ones: there are none, as long as no row was
-- changed by other means (a restore of some tables, a statement by hand). Looks at up to 1,000 permits, from a random
-- one on.
--
-- Two looks. The first takes no lock: a permit's count, the notices of ends and the running attempts change in one
-- commit each, and one statement reads one snapshot, so what differs there is wrong. Then the permit is locked, and a
-- later statement counts again:
--   * A claim raises the count under that lock, so none does meanwhile, and all that did have committed before the
--     statement. A permit that is locked is left to the next look.
--   * An end, a reap, a late worker: an attempt that runs no longer is noted in the same commit; the statement sees
--     both or neither.
--   * A fold takes the notice away under that lock.
-- The new count may leave room, so a notice is left for the streams that the permit blocks. The limit's row says when
-- that was, for doctor; a row that is being changed is left alone.
--
-- Holds of whole limits that a clock which was ahead has written begin again first, each under its limit's lock, in the
-- order of names in which all take the locks of several limits.
CREATE FUNCTION outlast_recount_v1(p_settled double precision)
RETURNS TABLE (name text, key text, counted integer, holders bigint)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := extract(epoch FROM clock_timestamp());
    v_from bigint := random() * 9e18; v_wrong bigint[]; v_name text;
BEGIN
    FOR v_name IN SELECT l.name FROM outlast_limits l WHERE l.held_until > v_now + l.held_for + 1 ORDER BY l.name LOOP
        PERFORM pg_advisory_xact_lock(outlast_limit_lock_v1(v_name));
        UPDATE outlast_limits l SET held_until = least(l.held_until, v_now + l.held_for) WHERE l.name = v_name;
        INSERT INTO outlast_notices (permit)
        SELECT p.id FROM outlast_permits p
        WHERE p.name = v_name AND EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id);
    END LOOP;
    v_wrong := ARRAY(
        WITH RECURSIVE found (id) AS (
            SELECT coalesce(
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked >= v_from ORDER BY s.blocked LIMIT 1),
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked IS NOT NULL ORDER BY s.blocked LIMIT 1))
            UNION  -- and not all: it ends where it began
            SELECT coalesce(
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked > f.id ORDER BY s.blocked LIMIT 1),
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked IS NOT NULL ORDER BY s.blocked LIMIT 1))
            FROM found f WHERE f.id IS NOT NULL
        )
        SELECT p.id FROM (SELECT f.id FROM found f LIMIT 1000) f JOIN outlast_permits p ON p.id = ANY (ARRAY[f.id])
        WHERE p.touched_at < v_now - p_settled);
    IF v_wrong = '{}' THEN RETURN; END IF;
    v_wrong := ARRAY(
        SELECT p.id FROM unnest(v_wrong, outlast_holders_v1(v_wrong)) AS u (id, holders)
        JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id]) WHERE p.used <> u.holders);
    IF v_wrong = '{}' THEN RETURN; END IF;
    v_wrong := ARRAY(
        SELECT p.id FROM outlast_permits p WHERE p.id = ANY (v_wrong) ORDER BY p.id FOR NO KEY UPDATE SKIP LOCKED);
    RETURN QUERY
        WITH wrong AS (
            SELECT p.id, p.used, u.holders FROM unnest(v_wrong, outlast_holders_v1(v_wrong)) AS u (id, holders)
            JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id]) WHERE p.used <> u.holders
        ), righted AS (
            UPDATE outlast_permits p SET used = w.holders, touched_at = v_now FROM wrong w WHERE p.id = w.id
        ), noted AS (
            INSERT INTO outlast_notices (permit) SELECT w.id FROM wrong w
        ), marked AS (
            UPDATE outlast_limits SET recounted_at = v_now WHERE name IN (
                SELECT l.name FROM outlast_limits l WHERE l.name IN (
                    SELECT p.name FROM wrong w JOIN outlast_permits p ON p.id = ANY (ARRAY[w.id]))
                FOR NO KEY UPDATE SKIP LOCKED)
        )
        SELECT p.name, p.key, w.used, w.holders FROM wrong w JOIN outlast_permits p ON p.id = w.id;
END
$$;
