-- Change a limit: the declaration of the code (p_declared), or the values of a person (p_own). running to per: the
-- values in force from then on. False: the limit was held by others for p_wait seconds (NULL: as long as a statement
-- may wait), and nothing was done.
--
-- Right against an exchange that reads the limit, and blocks streams by its permits as it was: the lock of the limit
-- (outlast_limit_lock_v1) is taken first, alone, so that exchange has committed. The next statement sees what it has
-- blocked, and leaves a notice for each permit that blocks a stream; exchanges that begin later read the new row, or
-- pass over the limit's streams while this transaction lasts. A lowered limit stops nothing that runs.
-- Of two changes at once the second waits for the lock, and finds the row of the first.
CREATE FUNCTION outlast_set_limit_v1(
    p_name text, p_running integer, p_spacing double precision, p_burst double precision, p_per text,
    p_declared text DEFAULT NULL, p_own text DEFAULT NULL, p_wait double precision DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now double precision := extract(epoch FROM clock_timestamp());
BEGIN
    BEGIN
        IF p_wait IS NOT NULL THEN PERFORM set_config('lock_timeout', (p_wait * 1000)::integer::text, true); END IF;
        PERFORM outlast_lock_v1(outlast_limit_lock_v1(p_name));
    EXCEPTION WHEN lock_not_available THEN
        RETURN false;
    END;
    IF p_declared IS NOT NULL THEN
        INSERT INTO outlast_limits AS l (name, declared, declared_at, running, spacing, burst, per)
        VALUES (p_name, p_declared, v_now, p_running, p_spacing, p_burst, p_per)
        ON CONFLICT (name) DO UPDATE
        SET declared = excluded.declared, declared_at = excluded.declared_at, running = excluded.running,
            spacing = excluded.spacing, burst = excluded.burst, per = excluded.per;
    ELSE
        UPDATE outlast_limits l SET own = p_own, running = p_running, spacing = p_spacing, burst = p_burst, per = p_per
        WHERE l.name = p_name;
    END IF;
    INSERT INTO outlast_notices (permit)
    SELECT p.id FROM outlast_permits p
    WHERE p.name = p_name AND EXISTS (SELECT FROM outlast_streams s WHERE s.blocked = p.id);
    RETURN true;
END
$$;
