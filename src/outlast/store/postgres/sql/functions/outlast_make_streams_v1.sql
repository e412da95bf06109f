-- Make the rows of streams that have none, and of their permits (outlast_make_permits_v1), from a job that waits in
-- each, or from a suspect, which needs the row to start. The stream's id says whether it is that of one tenant
-- (stream_id in model/limits.py). Returns the streams that are settled: their rows are made, or no job waits in them
-- any more. The others are left to the exchange that is making them. A stream that another exchange has made meanwhile
-- is not settled: it may be idle already.
--
-- As for permits, an insert waits for no other session: it is tried under an advisory lock. A job whose
-- needs cannot be read gets a stream that is blocked by a permit that does not exist (-1).
CREATE FUNCTION outlast_make_streams_v1(
    p_ids bigint[], p_tasks text[], p_queues text[], p_ranks smallint[], p_now double precision)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_new record; v_others bigint[]; v_settled bigint[];
BEGIN
    SELECT array_agg(f.id) AS ids, array_agg(f.n::integer) AS ns, array_agg(f.needs) AS needs,
           array_agg(f.tenant) AS tenants, array_agg(f.priority) AS priorities
    INTO v_new
    FROM (SELECT u.id, u.n, j.needs, j.tenant, CASE WHEN j.aged IS NULL THEN j.priority END AS priority
          FROM unnest(p_ids, p_tasks, p_queues) WITH ORDINALITY AS u (id, task, queue, n)
          CROSS JOIN LATERAL (
              (SELECT j.needs, j.tenant, j.aged, j.priority FROM outlast_jobs j
               WHERE j.task = u.task AND j.queue = u.queue AND j.stream = u.id AND j.position IS NOT NULL
               ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1)
              UNION ALL
              (SELECT j.needs, j.tenant, j.aged, j.priority FROM outlast_jobs j
               WHERE j.state = 'queued' AND j.solo > 0 AND j.solo IN (1, 2) AND j.queue = u.queue AND j.task = u.task
                 AND j.stream = u.id LIMIT 1)
              LIMIT 1) j) f;
    v_settled := ARRAY(SELECT u FROM unnest(p_ids) AS u EXCEPT SELECT u FROM unnest(v_new.ids) AS u);
    IF v_new.ids IS NULL THEN RETURN v_settled; END IF;

    v_others := outlast_make_permits_v1(v_new.needs, p_now);
    WITH made AS (
        INSERT INTO outlast_streams (id, task, queue, rank, tenant, turn, blocked, touched_at, permits, costs, needs, ordered)
        SELECT u.id, p_tasks[u.n], p_queues[u.n], p_ranks[u.n],
               CASE WHEN w.permits IS NOT NULL AND u.tenant IS NOT NULL AND u.id = outlast_stream_id_v1(
                        p_tasks[u.n], p_queues[u.n], u.priority, u.needs, u.tenant) THEN u.tenant END,
               nextval('outlast_turn_seq'),
               CASE WHEN w.permits IS NULL THEN -1 END, p_now, coalesce(w.permits, '{}'), w.costs, coalesce(u.needs, ''),
               coalesce(strpos(u.needs, ',true]') > 0, false)
        FROM unnest(v_new.ids, v_new.ns, v_new.needs, v_new.tenants, v_new.priorities) AS u (id, n, needs, tenant, priority)
        CROSS JOIN LATERAL (
            SELECT n.permits, CASE WHEN n.permits IS NULL THEN '{}' ELSE n.costs END AS costs
            FROM outlast_needs_v1(u.needs) n) w
        WHERE NOT coalesce(w.permits, '{}') && v_others AND pg_try_advisory_xact_lock(outlast_row_lock_v1(u.id))
        ON CONFLICT (id) DO NOTHING
        RETURNING id)
    SELECT v_settled || coalesce(array_agg(m.id), '{}') INTO v_settled FROM made m;
    RETURN v_settled;
END
$$;
