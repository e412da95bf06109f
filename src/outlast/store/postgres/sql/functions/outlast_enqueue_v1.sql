-- Store one job for a program in any language, and return its id (docs/other-languages.md). It refuses all that the
-- Python enqueue refuses. Budgets that are not given have their defaults; limits: outlast_stream_v1.
--
-- It runs as its owner, so that a role may do this and nothing else (the migration revokes EXECUTE from PUBLIC). Names
-- are found in the schema in which it was created, under any search_path of the caller, and no setting of the caller
-- changes the meaning of its string literals.
--
-- Why this is right: see `keyed` and `many` of enqueue.sql. An expired holder of the key is ended first
-- (outlast_free_keys_v1). The commit sends the wake-up.
CREATE FUNCTION outlast_enqueue_v1(
    task text, args text DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 0,
    delay double precision DEFAULT 0, run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
    key text DEFAULT NULL, tenant text DEFAULT NULL, retries integer DEFAULT NULL,
    timeout double precision DEFAULT NULL, limit_keys text DEFAULT NULL, cost text DEFAULT NULL,
    after bigint[] DEFAULT NULL, after_ended bigint[] DEFAULT NULL, once_per double precision DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET standard_conforming_strings = on
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_due double precision := coalesce(date_part('epoch', outlast_enqueue_v1.run_at), v_now + outlast_enqueue_v1.delay);
    v_expires double precision := date_part('epoch', outlast_enqueue_v1.expires_at);
    v_blank text := '[\s,\u0001-\u001f\u007f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]';
    v_policy text := jsonb_strip_nulls(jsonb_build_object(
        'retries', outlast_enqueue_v1.retries, 'timeout', outlast_enqueue_v1.timeout))::text;
    v_wrong text;
    v_id bigint;
    v_position bigint;
    v_holder text;
    v_place record;
    v_upstream bigint[] := coalesce(outlast_enqueue_v1.after, '{}') || coalesce(outlast_enqueue_v1.after_ended, '{}');
    v_waits boolean := v_upstream <> '{}';
    v_stores boolean;
BEGIN
    v_wrong := CASE
        WHEN (length(outlast_enqueue_v1.task) BETWEEN 1 AND 200
              AND outlast_enqueue_v1.task !~ v_blank) IS NOT TRUE
            THEN 'task must be a text of 1 to 200 characters without blanks and commas'
        WHEN (length(outlast_enqueue_v1.queue) BETWEEN 1 AND 200
              AND outlast_enqueue_v1.queue !~ v_blank) IS NOT TRUE
            THEN 'queue must be a text of 1 to 200 characters without blanks and commas'
        WHEN length(outlast_enqueue_v1.key) NOT BETWEEN 1 AND 500
            THEN 'key must be a text of 1 to 500 characters'
        WHEN outlast_enqueue_v1.key ~ '^outlast:(schedule|backfill):'
            THEN 'key begins as the keys of schedules do: choose one that does not begin with outlast:schedule: or outlast:backfill:'
        WHEN length(outlast_enqueue_v1.tenant) NOT BETWEEN 1 AND 500
            THEN 'tenant must be a text of 1 to 500 characters'
        WHEN (outlast_enqueue_v1.priority BETWEEN -100 AND 100) IS NOT TRUE
            THEN 'priority must be from -100 to 100'
        WHEN (outlast_enqueue_v1.delay BETWEEN 0 AND 3153600000) IS NOT TRUE
            THEN 'delay must be seconds from 0 to 3153600000'
        WHEN outlast_enqueue_v1.retries NOT BETWEEN 0 AND 10000
            THEN 'retries must be from 0 to 10000'
        WHEN NOT (outlast_enqueue_v1.timeout > 0 AND outlast_enqueue_v1.timeout <= 3153600000)
            THEN 'timeout must be seconds above 0, at most 3153600000'
        WHEN (v_due BETWEEN -62135510400 AND 253402128000) IS NOT TRUE
            THEN 'run_at must be in the years 1 to 9999'
        WHEN NOT (v_expires > v_due AND v_expires < 253402128000)
            THEN 'expires_at must be after the job is due'
        WHEN NOT (outlast_enqueue_v1.once_per > 0 AND outlast_enqueue_v1.once_per <= 3153600000)
            THEN 'once_per must be seconds above 0, at most 3153600000'
        WHEN outlast_enqueue_v1.once_per IS NOT NULL AND (outlast_enqueue_v1.key IS NULL OR v_waits)
            THEN 'once_per needs a key, and does not go with after and after_ended'
        WHEN outlast_enqueue_v1.task = 'outlast.shell' THEN 'commands cannot be enqueued by SQL'
        WHEN cardinality(v_upstream) > 10000 THEN 'after and after_ended name more than 10000 jobs'
        WHEN EXISTS (
            SELECT FROM unnest(v_upstream) AS u (id)
            WHERE (SELECT j.id FROM outlast_jobs j WHERE j.id = u.id AND (j.keep IS NULL OR j.keep > 0)) IS NULL)
            THEN 'after and after_ended must name jobs that are there, and stay when they end'
        WHEN outlast_enqueue_v1.args IS NULL THEN 'args must be a JSON object: the arguments by name'
    END;
    IF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', v_wrong USING ERRCODE = '22023';
    END IF;
    PERFORM outlast_refuse_args_v1(outlast_enqueue_v1.args);
    SELECT * INTO v_place FROM outlast_stream_v1(
        outlast_enqueue_v1.task, outlast_enqueue_v1.queue, outlast_enqueue_v1.priority, outlast_enqueue_v1.tenant, v_due,
        outlast_enqueue_v1.limit_keys, outlast_enqueue_v1.cost);
    IF v_place.stream IS NULL AND NOT EXISTS (
        SELECT FROM outlast_lanes l
        WHERE l.task = outlast_enqueue_v1.task AND l.queue = outlast_enqueue_v1.queue
          AND l.priority = outlast_enqueue_v1.priority AND l.added_at > v_now - 3600) THEN
        PERFORM outlast_add_lanes_v1(ARRAY[outlast_enqueue_v1.task], ARRAY[outlast_enqueue_v1.queue],
                                     ARRAY[outlast_enqueue_v1.priority]::smallint[]);
    END IF;
    IF NOT EXISTS (SELECT FROM outlast_incarnation) THEN PERFORM outlast_raise_ids_v1(); END IF;
    IF outlast_enqueue_v1.key IS NOT NULL THEN
        PERFORM outlast_free_keys_v1(ARRAY[outlast_enqueue_v1.key]);
    END IF;
    FOR v_try IN 1..10 LOOP
        v_stores := outlast_enqueue_v1.once_per IS NULL;
        IF NOT v_stores AND NOT EXISTS (
            SELECT FROM outlast_jobs j WHERE j.key = outlast_enqueue_v1.key AND j.ended_at IS NULL) THEN
            v_stores := outlast_take_window_v1(outlast_enqueue_v1.key, outlast_enqueue_v1.task, once_per);
        END IF;
        INSERT INTO outlast_jobs AS j (
            task, queue, args, priority, run_at, enqueued_at, position, tenant, policy, timeout, expires_at, key,
            stream, needs, aged, state)
        SELECT outlast_enqueue_v1.task, outlast_enqueue_v1.queue, outlast_enqueue_v1.args,
               outlast_enqueue_v1.priority, v_due, v_now,
               CASE WHEN v_due <= v_now AND NOT v_waits THEN nextval('outlast_position_seq') END,
               outlast_enqueue_v1.tenant, v_policy, outlast_enqueue_v1.timeout,
               v_expires, outlast_enqueue_v1.key, v_place.stream, v_place.needs, v_place.aged,
               CASE WHEN v_waits THEN 'blocked' ELSE 'queued' END
        WHERE v_stores
        ON CONFLICT (key) WHERE key IS NOT NULL AND ended_at IS NULL DO NOTHING
        RETURNING j.id, j.position INTO v_id, v_position;
        IF FOUND THEN
            IF once_per IS NOT NULL THEN
                PERFORM outlast_fill_window_v1(outlast_enqueue_v1.key, outlast_enqueue_v1.task, v_id);
            END IF;
            IF v_waits THEN
                PERFORM outlast_depend_v1(
                    array_agg(v_id), array_agg(u.id), array_agg((u.place > coalesce(cardinality(outlast_enqueue_v1.after), 0))::integer::smallint),
                    array_agg(0::smallint), array_agg(u.place::integer - 1))
                FROM (SELECT u.id, min(u.place) AS place FROM unnest(v_upstream) WITH ORDINALITY AS u (id, place) GROUP BY u.id) u;
            END IF;
            IF v_position IS NOT NULL AND v_place.stream IS NOT NULL THEN
                INSERT INTO outlast_notices (stream, arrived, task, queue, place)
                VALUES (v_place.stream, true, outlast_enqueue_v1.task, outlast_enqueue_v1.queue, coalesce(v_place.aged, v_position));
            END IF;
            IF v_position IS NOT NULL THEN
                PERFORM pg_notify(outlast_channel_v1(), 'jobs:' || v_position || ':1:' || outlast_enqueue_v1.queue);
            END IF;
            RETURN v_id;
        END IF;
        SELECT j.id, j.task INTO v_id, v_holder
        FROM outlast_jobs j WHERE j.key = outlast_enqueue_v1.key AND j.ended_at IS NULL;
        IF FOUND AND v_holder <> outlast_enqueue_v1.task THEN
            RAISE EXCEPTION 'the key belongs to an unfinished job of another task'
                USING ERRCODE = '23505';
        END IF;
        IF FOUND THEN
            RETURN v_id;
        END IF;
        SELECT w.job_id INTO v_id FROM outlast_windows w
        WHERE w.key = outlast_enqueue_v1.key AND w.task = outlast_enqueue_v1.task AND w.job_id <> 0 AND NOT v_stores;
        IF FOUND THEN
            RETURN v_id;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'jobs with this key came and went too fast; enqueue again' USING ERRCODE = '40001';
END
$$;
