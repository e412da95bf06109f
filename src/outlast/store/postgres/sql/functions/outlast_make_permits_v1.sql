-- Make the rows of those permits in these texts of needs that have none. Returns the permits that are left to another
-- session, which is making them.
--
-- Two exchanges may meet the same new permit. An insert of a row that another transaction has inserted and not
-- committed would wait for it. So each row is made under an advisory lock (outlast_row_lock_v1), which is tried and not
-- waited for. A row that the other has committed since the look is left as it is (ON CONFLICT, which then waits for nothing).
-- The lock of the limit (outlast_limit_lock_v1) is taken shared as well: a change of the limit waits for this
-- transaction, and then sees the new permits.
CREATE FUNCTION outlast_make_permits_v1(p_needs text[], p_now double precision) RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_ids bigint[]; v_names text[]; v_keys text[];
BEGIN
    SELECT array_agg(p.permit), array_agg(p.name), array_agg(p.key) INTO v_ids, v_names, v_keys
    FROM (SELECT DISTINCT ON (u.permit) u.permit, u.name, u.key
          FROM (SELECT DISTINCT t.needs FROM unnest(p_needs) AS t (needs)) d
          CROSS JOIN LATERAL outlast_needs_v1(d.needs) w
          CROSS JOIN LATERAL unnest(w.permits, w.names, w.keys) AS u (permit, name, key)
          ORDER BY u.permit) p
    WHERE (SELECT o.id FROM outlast_permits o WHERE o.id = p.permit) IS NULL;  -- no join: by id alone
    IF v_ids IS NULL THEN RETURN '{}'; END IF;
    WITH mine AS MATERIALIZED (
        SELECT u.permit, u.name, u.key FROM unnest(v_ids, v_names, v_keys) AS u (permit, name, key)
        WHERE pg_try_advisory_xact_lock_shared(outlast_limit_lock_v1(u.name)) AND pg_try_advisory_xact_lock(outlast_row_lock_v1(u.permit))
    ), made AS (
        INSERT INTO outlast_permits (id, name, key, touched_at) SELECT m.permit, m.name, m.key, p_now FROM mine m
        ON CONFLICT (id) DO NOTHING)
    SELECT array_agg(o.id) INTO v_ids
    FROM (SELECT u AS id FROM unnest(v_ids) AS u EXCEPT SELECT m.permit FROM mine m) o;
    RETURN coalesce(v_ids, '{}');
END
$$;
