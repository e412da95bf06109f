-- Store one schedule that was put at run time or declared by the code of a worker. Returns a Put (store/schedules.py).
-- May run inside a caller's own transaction: the schedule is in use when that commits.
--
-- Why this is right against
--   * another put of the name: both insert, and the unique index makes the second wait for the first; it then finds the
--     row. The row is locked before it is judged. If another transaction holds the lock for longer than some seconds,
--     the statement fails, and its transaction with it.
--   * a transaction that keeps a row locked: a worker waits for no row, since its session has other work. It skips a
--     held row and declares the schedule again later. Only a name that another transaction has stored and not committed
--     cannot be seen, and the insert waits briefly for it. A declaration that already stands as it is needs no lock: it
--     may count as having come before the change under way. The same holds if the row is locked while its declaration
--     is in use: another worker renews it, or this one will.
--   * a worker that fires: it matches the revision and next_tick that it has read against the newest version of the
--     row. A change draws a revision that was never drawn before, also after a delete.
--   * a rolling deploy: workers of the old release continue to declare their version. A version that was replaced is
--     listed in versions, and replaces the newer one only when that is no longer declared. A step of the clock makes a
--     declaration look old only until it is renewed.
--   * a delete: its row stays for a while and records up to when ticks are accounted for. So if the name is put again
--     while the clock is behind that time, no tick gets a second job. The row is locked like any other, and an update
--     makes it the new schedule's row, since roles that may only enqueue cannot delete here. A changed spec begins
--     after now, and never before the accounted time, for the same reason. The ticks of the old spec in between are
--     owed, and the next worker that looks counts them.
CREATE FUNCTION outlast_put_schedule_v1(
    p_name text, p_call text, p_spec text, p_overlap text, p_catch_up text, p_grace double precision,
    p_origin text, p_version text, p_renew double precision, p_fresh double precision,
    p_ahead double precision, p_kept integer, p_owed integer)
RETURNS text
LANGUAGE plpgsql
SET lock_timeout = '5s'
AS $$
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_row outlast_schedules;
    v_seen outlast_schedules;
    v_since double precision := v_now;
BEGIN
    SELECT * INTO v_row FROM outlast_schedules s WHERE s.name = p_name;
    IF v_row.origin = p_origin AND v_row.version = p_version
       AND (p_origin <> 'code' OR v_row.declared AND abs(v_row.declared_at - v_now) <= p_renew) THEN
        RETURN 'same';
    END IF;
    IF p_origin = 'code' THEN
        SET LOCAL lock_timeout = '10ms';
    END IF;
    LOOP
        IF p_origin = 'code' THEN
            SELECT * INTO v_seen FROM outlast_schedules s WHERE s.name = p_name;
            SELECT * INTO v_row FROM outlast_schedules s WHERE s.name = p_name FOR NO KEY UPDATE SKIP LOCKED;
            IF v_row.name IS NULL AND v_seen.name IS NOT NULL THEN
                RETURN CASE WHEN v_seen.origin = p_origin AND v_seen.version = p_version AND v_seen.declared
                                 AND abs(v_seen.declared_at - v_now) <= p_fresh THEN 'same' ELSE 'held' END;
            END IF;
        ELSE
            SELECT * INTO v_row FROM outlast_schedules s WHERE s.name = p_name FOR NO KEY UPDATE;
        END IF;
        EXIT WHEN v_row.origin <> 'deleted';
        IF v_row.name IS NOT NULL THEN
            IF v_row.since - v_now <= p_ahead THEN
                v_since := greatest(v_row.since, v_now);
            END IF;
            UPDATE outlast_schedules s
            SET call = p_call, spec = p_spec, overlap = p_overlap, catch_up = p_catch_up, grace = p_grace,
                origin = p_origin, version = p_version, versions = '', revision = nextval('outlast_position_seq'),
                paused = false, declared = true, declared_at = CASE WHEN p_origin = 'code' THEN v_now END,
                since = v_since, next_tick = v_since, owed = '', last_tick = NULL, last_job = NULL, fired = 0,
                skipped = 0, missed = 0, last_skip = NULL, last_skip_job = NULL
            WHERE s.name = p_name;
            RETURN 'created';
        END IF;
        BEGIN
            INSERT INTO outlast_schedules (name, call, spec, overlap, catch_up, grace, origin, version, revision,
                                           declared_at, since, next_tick)
            VALUES (p_name, p_call, p_spec, p_overlap, p_catch_up, p_grace, p_origin, p_version,
                    nextval('outlast_position_seq'), CASE WHEN p_origin = 'code' THEN v_now END, v_since, v_since)
            ON CONFLICT (name) DO NOTHING;
            IF FOUND THEN
                RETURN 'created';
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            IF p_origin <> 'code' THEN RAISE; END IF;
            RETURN 'held';
        END;
    END LOOP;
    IF v_row.origin <> p_origin AND (p_origin = 'code' OR abs(v_row.declared_at - v_now) <= p_fresh) THEN
        RETURN 'taken';
    END IF;
    IF v_row.origin = p_origin AND v_row.version = p_version THEN
        IF p_origin = 'code' THEN
            UPDATE outlast_schedules s SET declared = true, declared_at = v_now WHERE s.name = p_name;
        END IF;
        RETURN 'same';
    END IF;
    IF p_origin = 'code' AND abs(v_row.declared_at - v_now) <= p_fresh
       AND p_version = ANY (string_to_array(v_row.versions, ' ')) THEN
        RETURN 'older';
    END IF;
    IF v_row.spec <> p_spec THEN
        v_since := greatest(v_row.since, v_now);
        -- The ticks in between are owed (model/schedule_plan.py, owe), unless many edits have made the text too long.
        IF floor(v_since) > floor(v_row.since) AND length(v_row.owed) + length(v_row.spec) <= p_owed THEN
            v_row.owed := v_row.owed || floor(v_row.since)::bigint || ' ' || floor(v_since)::bigint || ' '
                          || v_row.spec || E'\n';
        END IF;
        v_row.since := v_since;
        v_row.next_tick := v_since;
    END IF;
    UPDATE outlast_schedules s
    SET call = p_call, spec = p_spec, overlap = p_overlap, catch_up = p_catch_up, grace = p_grace,
        origin = p_origin, version = p_version, versions = right(v_row.versions || ' ' || v_row.version, p_kept),
        revision = nextval('outlast_position_seq'), declared = true,
        declared_at = CASE WHEN p_origin = 'code' THEN v_now END, since = v_row.since,
        next_tick = v_row.next_tick, owed = v_row.owed
    WHERE s.name = p_name;
    RETURN 'changed';
END
$$;
