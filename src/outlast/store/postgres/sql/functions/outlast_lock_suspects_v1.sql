-- Lock the next suspects of the line for a request (its place in p_req: p_request) that asks for suspects, task by
-- task, in the order of the line. Returns the same as outlast_lock_lanes_v1, but shows no positions: a suspect is
-- claimed ahead of jobs before it, so no floor may follow from its position.
--
-- Few jobs are suspects, so their index is read from its head, without a floor. Suspects in streams are left to
-- outlast_claim_streams_v1. Rows that other sessions hold are skipped (SKIP LOCKED), and a row that was claimed or
-- cleared since the snapshot is re-checked when it is locked.
CREATE FUNCTION outlast_lock_suspects_v1(
    p_req outlast_claim_request_v1, p_request integer, p_limit integer,
    OUT ids bigint[], OUT rows tid[], OUT positions bigint[], OUT shown bigint[], OUT bytes bigint,
    OUT started double precision)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_solo integer := p_req.solos[p_request];
BEGIN
    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.position), array_agg(NULL::bigint),
           coalesce(sum(l.bytes), 0), date_part('epoch', clock_timestamp())
    INTO ids, rows, positions, shown, bytes, started
    FROM (SELECT c.*
          FROM unnest(p_req.tasks[p_request]::text[]) AS t (task)
          CROSS JOIN LATERAL (
              SELECT j.id, j.ctid, j.position, j.priority, octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0) AS bytes
              FROM outlast_jobs j
              WHERE j.state = 'queued' AND j.solo > 0 AND j.solo = v_solo AND j.task = t.task AND j.stream IS NULL
                AND coalesce(j.position, 0) > 0 AND (p_req.queues = '{}' OR j.queue = ANY (p_req.queues))
                AND j.queue <> ALL (p_req.not_queues) AND (j.tenant IS NULL OR j.tenant <> ALL (p_req.not_tenants))
              ORDER BY j.task, j.queue, j.stream, (-j.priority), j.position LIMIT p_limit
              FOR NO KEY UPDATE SKIP LOCKED) c
          ORDER BY c.priority DESC, c.position LIMIT p_limit) l;
END
$$;
