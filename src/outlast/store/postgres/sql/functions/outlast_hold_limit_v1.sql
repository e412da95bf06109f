-- Let nothing start under a limit for some seconds; 0 ends that. p_id: the one permit that is held, with its key; NULL:
-- all permits of the limit. False: there is no such limit.
--
-- A permit is held by a notice, which waits for no lock: a fold writes the time on the permit's row, before the exchange
-- claims. An exchange that holds the row at this moment may start jobs that it has counted already. The permit is made
-- if it is not there, under the advisory lock on its id that every maker takes (outlast_make_permits_v1). FOR KEY SHARE
-- waits for a prune alone: until the notice is committed, none deletes the row.
-- All of a limit's permits are held on the limit's row, under its lock, as in outlast_put_limits_v1. p_seconds NULL: if
-- this hold lasts longer than was asked for (held_for), a clock that was ahead has written it, and it begins again.
CREATE FUNCTION outlast_hold_limit_v1(p_name text, p_id bigint, p_key text, p_seconds double precision) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now double precision := extract(epoch FROM clock_timestamp());
BEGIN
    IF NOT EXISTS (SELECT FROM outlast_limits l WHERE l.name = p_name) THEN RETURN false; END IF;
    IF p_id IS NULL THEN
        PERFORM pg_advisory_xact_lock(outlast_limit_lock_v1(p_name));
        UPDATE outlast_limits l
        SET held_until = CASE WHEN p_seconds IS NULL THEN least(l.held_until, v_now + l.held_for)
                              WHEN p_seconds > 0 THEN v_now + least(p_seconds, 1e9) END,
            held_for = coalesce(least(p_seconds, 1e9), l.held_for)
        WHERE l.name = p_name;
        INSERT INTO outlast_notices (permit)
        SELECT p.id FROM outlast_permits p
        WHERE p.name = p_name AND EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id);
    ELSE
        PERFORM FROM outlast_permits p WHERE p.id = p_id FOR KEY SHARE;
        IF NOT FOUND THEN
            PERFORM pg_advisory_xact_lock(outlast_row_lock_v1(p_id));
            INSERT INTO outlast_permits (id, name, key, touched_at) VALUES (p_id, p_name, p_key, v_now)
            ON CONFLICT (id) DO NOTHING;
        END IF;
        INSERT INTO outlast_notices (permit, held_until, held_for)
        SELECT p_id, v_now + s.seconds, s.seconds FROM (SELECT greatest(0, least(p_seconds, 1e9)) AS seconds) s;
    END IF;
    RETURN true;
END
$$;
