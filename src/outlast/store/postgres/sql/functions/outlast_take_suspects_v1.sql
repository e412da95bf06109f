-- Take the permits of suspects that the caller has locked and is about to start. Returns those of p_ids, in their
-- order, that may start: all whose permits are locked here and have room. The others stay queued.
--
-- Suspects are in no stream. As outlast_claim_streams_v1 does, this locks without waiting, reads what a permit allows
-- by a later statement, under the shared lock of its limit, and counts in the transaction that draws the tokens. The
-- stream's row is locked and touched as well: it is kept as long as an attempt of it runs (prune.sql). Permits that
-- have been deleted are made again, for the next look. The permits
-- locked are returned, to be looked at before the commit (outlast_leave_permits_v1).
CREATE FUNCTION outlast_take_suspects_v1(p_ids bigint[], OUT ids bigint[], OUT permits bigint[])
LANGUAGE plpgsql
AS $$
DECLARE
    v_now double precision := extract(epoch FROM clock_timestamp());
    v_job record; v_permits bigint[]; v_names text[];
BEGIN
    ids := '{}';
    permits := '{}';
    FOR v_job IN
        SELECT u.id, j.stream, s.permits, s.costs, s.needs FROM unnest(p_ids) WITH ORDINALITY AS u (id, n)
        LEFT JOIN outlast_jobs j ON j.id = ANY (ARRAY[u.id]) LEFT JOIN outlast_streams s ON s.id = j.stream ORDER BY u.n
    LOOP
        IF v_job.stream IS NOT NULL THEN
            CONTINUE WHEN v_job.permits IS NULL;
            PERFORM FROM outlast_streams s WHERE s.id = v_job.stream
            FOR NO KEY UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            SELECT array_agg(l.id), array_agg(DISTINCT l.name) INTO v_permits, v_names
            FROM (SELECT p.id, p.name FROM outlast_permits p WHERE p.id = ANY (v_job.permits)
                  ORDER BY p.id FOR NO KEY UPDATE SKIP LOCKED) l;
            permits := permits || v_permits;
            IF coalesce(cardinality(v_permits), 0) < cardinality(v_job.permits) THEN
                PERFORM outlast_make_permits_v1(ARRAY[v_job.needs], v_now);
                CONTINUE;
            END IF;
            CONTINUE WHEN EXISTS (SELECT FROM unnest(v_names) AS u
                                  WHERE NOT pg_try_advisory_xact_lock_shared(outlast_limit_lock_v1(u)));
            UPDATE outlast_permits p  -- as outlast_fold_v1 does, after a clock that was ahead
            SET tat = v_now + greatest(0, p.tat - p.touched_at), held_until = v_now + greatest(0, p.held_until - p.touched_at),
                touched_at = v_now, kept_for = NULL, kept_until = NULL
            WHERE p.id = ANY (v_permits) AND p.touched_at > v_now + 1;
            CONTINUE WHEN NOT outlast_has_room_v1(v_job.stream, v_now);
            UPDATE outlast_permits p
            SET used = p.used + 1, touched_at = v_now,
                tat = v_now + greatest(0, p.tat - greatest(v_now, p.touched_at)) + coalesce(c.cost * l.spacing, 0)
            FROM unnest(v_job.permits, v_job.costs) AS c (permit, cost), outlast_limits l
            WHERE p.id = c.permit AND l.name = p.name;
            UPDATE outlast_streams s SET touched_at = v_now WHERE s.id = v_job.stream;
        END IF;
        ids := ids || v_job.id;
    END LOOP;
END
$$;
