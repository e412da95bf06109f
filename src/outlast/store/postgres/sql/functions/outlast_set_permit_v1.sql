-- Give one key of a limit a cap of its own; p_running NULL: take it back, of this key or (p_key NULL) of all.
--
-- Right against an exchange that counts under the permit, or makes it: the limit's lock is taken alone first, as in
-- outlast_put_limits_v1, so that exchange has committed, and the permit's row is there or is made here. A fold may hold
-- the row: this waits for it, and leaves a notice, since the permit may have room now.
CREATE FUNCTION outlast_set_permit_v1(p_name text, p_id bigint, p_key text, p_running integer) RETURNS void
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now double precision := extract(epoch FROM clock_timestamp());
BEGIN
    PERFORM pg_advisory_xact_lock(outlast_limit_lock_v1(p_name));
    IF p_key IS NULL THEN
        PERFORM FROM outlast_permits p WHERE p.name = p_name AND p.own_running IS NOT NULL ORDER BY p.id FOR NO KEY UPDATE;
        WITH changed AS (
            UPDATE outlast_permits p SET own_running = NULL WHERE p.name = p_name AND p.own_running IS NOT NULL RETURNING p.id)
        INSERT INTO outlast_notices (permit) SELECT c.id FROM changed c;
    ELSE
        PERFORM pg_advisory_xact_lock(outlast_row_lock_v1(p_id));
        INSERT INTO outlast_permits AS p (id, name, key, own_running, touched_at) VALUES (p_id, p_name, p_key, p_running, v_now)
        ON CONFLICT (id) DO UPDATE SET own_running = excluded.own_running;
        INSERT INTO outlast_notices (permit) VALUES (p_id);
    END IF;
END
$$;
