-- Find the stream for a job that SQL enqueues, and the permits that it needs: as find_needs and in_stream
-- (client/limits.py) do, but from the announcements of workers: the task (outlast_tasks) and its limits. stream is NULL
-- for a job that waits in the line. A task that no worker has announced may be under limits, so it is refused: its jobs
-- could exceed them.
--
-- Both rows are read as committed, without a lock. A worker announces limits before tasks, so the limits of a task
-- exist. If another release announces other limits at this moment, the job gets those of the release before: it counts
-- as enqueued just before. Keys and costs are texts of the caller, so each is bounded and checked here. A cost is
-- rounded to the eight bytes in which it is stored, in the id of the stream as well.
CREATE FUNCTION outlast_stream_v1(
    p_task text, p_queue text, p_priority integer, p_tenant text, p_due double precision, p_keys text, p_costs text,
    OUT stream bigint, OUT needs text, OUT aged bigint)
LANGUAGE plpgsql
SET standard_conforming_strings = on
SET extra_float_digits = 1
AS $$
DECLARE
    v_keys jsonb; v_costs jsonb; v_task record; v_all record; v_fair text; v_wrong text;
BEGIN
    SELECT t.limits::json AS limits, t.fair, t.aging, t.priority INTO v_task FROM outlast_tasks t WHERE t.name = p_task;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no worker has announced this task yet, so its limits are not known: start one that knows it'
            USING ERRCODE = '55000';
    END IF;
    IF v_task.limits::text = '[]' AND NOT v_task.fair AND v_task.aging IS NULL AND p_keys IS NULL AND p_costs IS NULL THEN
        RETURN;
    END IF;
    v_wrong := CASE WHEN octet_length(p_keys) > 65536 THEN 'limit_keys have more than 65536 bytes'
                    WHEN octet_length(p_costs) > 65536 THEN 'cost has more than 65536 bytes' END;
    IF v_wrong IS NULL THEN
        v_keys := coalesce(p_keys, '{}');
        v_costs := coalesce(p_costs, '{}');
        v_wrong := CASE
            WHEN jsonb_typeof(v_keys) <> 'object' THEN 'limit_keys must be a JSON object: {"host": "example.org"}'
            WHEN jsonb_typeof(v_costs) <> 'object' THEN 'cost must be a JSON object: {"openai": 3}' END;
    END IF;
    IF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', v_wrong USING ERRCODE = '22023';
    END IF;

    WITH declared AS MATERIALIZED (
        SELECT u.name, l.declared::json AS spec
        FROM json_array_elements_text(v_task.limits) AS u (name) LEFT JOIN outlast_limits l ON l.name = u.name
    ), limited AS MATERIALIZED (
        SELECT d.name, d.spec IS NULL AS unknown, coalesce(d.spec ->> 'per', '') AS per,
               d.spec ->> 'spacing' IS NOT NULL AS rated, coalesce((d.spec ->> 'burst')::double precision, 1) AS burst,
               coalesce((d.spec ->> 'ordered')::boolean, false) AS ordered,
               CASE d.spec ->> 'per' WHEN 'tenant' THEN p_tenant
                                     WHEN 'limit_key' THEN CASE WHEN jsonb_typeof(v_keys -> d.name) = 'string'
                                                                THEN v_keys ->> d.name END
                                     ELSE '' END AS key,
               CASE WHEN NOT v_costs ? d.name THEN 1
                    WHEN jsonb_typeof(v_costs -> d.name) = 'number' THEN (v_costs ->> d.name)::double precision END AS cost
        FROM declared d
    ), needed AS MATERIALIZED (
        SELECT l.*, outlast_hash_v1('permit', l.name, coalesce(l.key, '')) AS permit FROM limited l)
    SELECT string_agg('[' || n.permit || ',' || to_json(n.name) || ',' || to_json(n.key) || ',' || n.cost
                      || CASE WHEN n.ordered THEN ',true]' ELSE ']' END, ',' ORDER BY n.permit) AS needs,
           min(CASE WHEN n.unknown
                    THEN format('the limit %L is not known yet: a worker announces it', n.name)
                    WHEN n.per = 'tenant' AND n.key IS NULL
                    THEN format('the task is under %L, a limit per tenant: say whose job it is, tenant => ''acme''', n.name)
                    WHEN n.per = 'limit_key' AND (length(n.key) BETWEEN 1 AND 500) IS NOT TRUE
                    THEN format('the task is under %L, a limit per limit_key: limit_keys must have a text for it', n.name)
                    WHEN (n.cost >= 0.000001 AND n.cost <= 1000000) IS NOT TRUE
                    THEN format('the cost of %L must be a number from 0.000001 to 1000000', n.name)
                    WHEN n.rated AND v_costs ? n.name AND n.cost > n.burst
                    THEN format('a cost of %s is above the burst of %L, %s: it never starts', n.cost, n.name, n.burst)
                    WHEN n.ordered AND v_costs <> '{}'
                    THEN format('the task is under the ordered limit %L: jobs of other costs would pass', n.name)
                    WHEN n.ordered AND EXISTS (
                        SELECT FROM needed o
                        WHERE o.name <> n.name AND o.per <> '' AND (o.per = 'tenant' AND n.per = 'tenant') IS NOT TRUE)
                    THEN format('the task is under the ordered limit %L: jobs of other keys would pass', n.name)
                    WHEN n.ordered AND p_priority <> v_task.priority
                    THEN format('the task is under an ordered limit: say priority => %s, its own, so that no job passes another',
                                v_task.priority) END) AS wrong,
           coalesce(array_agg(n.name) FILTER (WHERE n.per = 'limit_key'), '{}') AS keyed,
           coalesce(array_agg(n.name) FILTER (WHERE n.rated), '{}') AS rated
    INTO v_all FROM needed n;
    v_wrong := coalesce(
        v_all.wrong,
        (SELECT format('the task is under no limit per limit_key called %L', k.name)
         FROM jsonb_object_keys(v_keys) AS k (name) WHERE k.name <> ALL (v_all.keyed) LIMIT 1),
        (SELECT format('the task is under no limit with a rate called %L', c.name)
         FROM jsonb_object_keys(v_costs) AS c (name) WHERE c.name <> ALL (v_all.rated) LIMIT 1));
    IF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', v_wrong USING ERRCODE = '22023';
    END IF;

    IF v_task.fair THEN v_fair := coalesce(p_tenant, ''); END IF;
    IF v_all.needs IS NULL AND v_fair IS NULL AND v_task.aging IS NULL THEN RETURN; END IF;
    needs := '[' || coalesce(v_all.needs, '') || ']';
    aged := ((p_due - p_priority * v_task.aging) * 1000)::bigint;
    stream := outlast_stream_id_v1(p_task, p_queue, CASE WHEN v_task.aging IS NULL THEN p_priority END, needs, v_fair);
END
$$;
