-- Correct the counts of permits that block streams and were last written at least p_settled seconds ago, if they differ
-- from the number of attempts that run under them, as after a restore of some tables or a statement by hand. Returns
-- the corrected permits. Checks up to 1,000 permits, beginning with a random one.
--
-- It counts twice. The first count takes no lock: a permit's count, the notices of ends and the running attempts change
-- in one commit each, and one statement reads one snapshot, so a difference is an error. Then the keeper lock is taken,
-- and a later statement counts again; if the lock is not free in time, the next call tries.
--   * A claim raises the count, and a fold takes notices away, under that lock, so all of these have committed before.
--   * An end, a reap, a late worker: an attempt that stops running is noted in the same commit; the statement sees both
--     or neither.
-- The new count may leave room, so a notice is left for the streams that the permit blocks. The limit's row records the
-- correction.
--
-- Holds of whole limits that were written by a clock that was ahead begin again, under the lock, too.
CREATE FUNCTION outlast_recount_v1(p_settled double precision)
RETURNS TABLE (name text, key text, counted integer, holders bigint)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_from bigint := random() * 9e18; v_wrong bigint[];
BEGIN
    v_wrong := ARRAY(
        WITH RECURSIVE found (id) AS (
            SELECT coalesce(
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked >= v_from ORDER BY s.blocked LIMIT 1),
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked IS NOT NULL ORDER BY s.blocked LIMIT 1))
            UNION  -- not UNION ALL: the walk ends where it began
            SELECT coalesce(
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked > f.id ORDER BY s.blocked LIMIT 1),
                (SELECT s.blocked FROM outlast_streams s WHERE s.blocked IS NOT NULL ORDER BY s.blocked LIMIT 1))
            FROM found f WHERE f.id IS NOT NULL
        )
        SELECT p.id FROM (SELECT f.id FROM found f LIMIT 1000) f JOIN outlast_permits p ON p.id = ANY (ARRAY[f.id])
        WHERE p.touched_at < v_now - p_settled);
    IF v_wrong <> '{}' THEN
        v_wrong := ARRAY(
            SELECT p.id FROM unnest(v_wrong, outlast_holders_v1(v_wrong)) AS u (id, holders)
            JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id]) WHERE p.used <> u.holders);
    END IF;
    IF v_wrong = '{}' AND NOT EXISTS (SELECT FROM outlast_limits l WHERE l.held_until > v_now + l.held_for + 1)
        OR NOT outlast_lock_keeper_v1(0.5) THEN
        RETURN;
    END IF;
    WITH ahead AS (
        UPDATE outlast_limits l SET held_until = v_now + l.held_for
        WHERE l.held_until > v_now + l.held_for + 1 RETURNING l.name)
    INSERT INTO outlast_notices (permit)
    SELECT p.id FROM ahead a JOIN outlast_permits p ON p.name = a.name
    WHERE EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id);
    RETURN QUERY
        WITH wrong AS (
            SELECT p.id, p.used, u.holders FROM unnest(v_wrong, outlast_holders_v1(v_wrong)) AS u (id, holders)
            JOIN outlast_permits p ON p.id = ANY (ARRAY[u.id]) WHERE p.used <> u.holders
        ), righted AS (
            UPDATE outlast_permits p SET used = w.holders, touched_at = v_now FROM wrong w WHERE p.id = w.id
        ), noted AS (
            INSERT INTO outlast_notices (permit) SELECT w.id FROM wrong w
        ), marked AS (
            UPDATE outlast_limits SET recounted_at = v_now
            WHERE name IN (SELECT p.name FROM wrong w JOIN outlast_permits p ON p.id = ANY (ARRAY[w.id]))
        )
        SELECT p.name, p.key, w.used, w.holders FROM wrong w JOIN outlast_permits p ON p.id = w.id;
END
$$;
