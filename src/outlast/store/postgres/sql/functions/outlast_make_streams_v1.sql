-- Insert the missing rows of streams, and of their permits, each from a job that waits in the stream. p_tasks and
-- p_queues say where a job of the stream may wait; a stream may be listed several times. The caller has the keeper
-- lock.
--
-- A role that may enqueue may store a job, and a notice, that name any stream. So a row is made only from a job whose
-- stream id follows from its task, queue, priority and needs (outlast_stream_id_v1); others, 20,000 at most (some 30 us
-- each), are passed over and never start. In needs that can be read, the ids of permits follow from their names and
-- keys (outlast_needs_v1). A stream names its tenant where tenants take turns, and under a limit per tenant: all its
-- jobs are passed over while that tenant is paused, even one of another tenant that was put there by hand.
CREATE FUNCTION outlast_make_streams_v1(p_ids bigint[], p_tasks text[], p_queues text[], p_now double precision)
RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_new record;
BEGIN
    SELECT array_agg(f.id) AS ids, array_agg(f.n::integer) AS ns, array_agg(f.needs) AS needs,
           array_agg(f.tenant) AS tenants, array_agg(f.rank) AS ranks
    INTO v_new
    FROM (SELECT u.id, u.n, j.needs, j.tenant, j.rank
          FROM unnest(p_ids, p_tasks, p_queues) WITH ORDINALITY AS u (id, task, queue, n)
          CROSS JOIN LATERAL (
              SELECT j.needs,
                     CASE WHEN NOT f.is_common OR EXISTS (
                         SELECT FROM unnest(w.names, w.keys) AS k (name, key) JOIN outlast_limits l ON l.name = k.name
                         WHERE l.per = 'tenant' AND k.key = j.tenant) THEN j.tenant END AS tenant,
                     CASE WHEN j.aged IS NULL THEN -j.priority ELSE 0 END AS rank
              FROM (SELECT j.needs, j.tenant, j.aged, j.priority FROM outlast_jobs j
                    WHERE j.task = u.task AND j.queue = u.queue AND j.stream = u.id AND j.position IS NOT NULL
                    ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 20000) j
              CROSS JOIN LATERAL outlast_needs_v1(j.needs) w
              CROSS JOIN LATERAL (
                  SELECT outlast_stream_id_v1(u.task, u.queue, i.priority, i.needs, NULL) = u.id AS is_common,
                         outlast_stream_id_v1(u.task, u.queue, i.priority, i.needs, coalesce(j.tenant, '')) = u.id AS is_fair
                  FROM (SELECT CASE WHEN j.aged IS NULL THEN j.priority END AS priority,
                               CASE WHEN w.permits IS NOT NULL THEN j.needs ELSE '[]' END AS needs) i) f
              WHERE w.permits IS NOT NULL AND (f.is_common OR f.is_fair) LIMIT 1) j) f;
    IF v_new.ids IS NULL THEN RETURN; END IF;
    PERFORM outlast_make_permits_v1(v_new.needs, p_now);
    INSERT INTO outlast_streams (id, task, queue, rank, tenant, turn, touched_at, permits, costs, needs, ordered)
    SELECT DISTINCT ON (u.id) u.id, p_tasks[u.n], p_queues[u.n], u.rank, u.tenant, nextval('outlast_turn_seq'), p_now, w.permits, w.costs,
           u.needs, strpos(u.needs, ',true]') > 0
    FROM unnest(v_new.ids, v_new.ns, v_new.needs, v_new.tenants, v_new.ranks) AS u (id, n, needs, tenant, rank)
    CROSS JOIN LATERAL outlast_needs_v1(u.needs) w
    WHERE (SELECT o.id FROM outlast_streams o WHERE o.id = u.id ORDER BY o.id DESC, o.turn DESC LIMIT 1) IS NULL;
END
$$;
