-- Return when this worker may take a suspect: now, if one is due; otherwise when the first suspect's back-off ends;
-- NULL if there is none. It counts only suspects of the worker's own tasks and queues that are not paused: a suspect
-- that another worker serves, or none, would look due to each idle worker again and again. Runs inside
-- outlast_peek_v1, only while any suspect waits; reads only, lane by lane. If the names on the worker's row cannot be
-- read, the answer is now, and the exchange then reports the fault.
CREATE FUNCTION outlast_suspect_due_v1(p_worker bigint, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_tasks text[]; v_queues text[]; v_not_queues text[]; v_not_tenants text[];
BEGIN
    SELECT ARRAY(SELECT json_array_elements_text(w.tasks::json)
                 EXCEPT SELECT p.name FROM outlast_pauses p WHERE p.kind = 'task'),
           ARRAY(SELECT json_array_elements_text(w.queues::json)),
           ARRAY(SELECT p.name FROM outlast_pauses p WHERE p.kind = 'queue'),
           ARRAY(SELECT p.name FROM outlast_pauses p WHERE p.kind = 'tenant')
    INTO v_tasks, v_queues, v_not_queues, v_not_tenants
    FROM outlast_workers w
    WHERE w.id = p_worker AND w.status = 'active'
      AND NOT EXISTS (SELECT FROM outlast_pauses p WHERE p.kind = 'all');
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF EXISTS (SELECT FROM generate_series(1, 2) AS k (solo), outlast_suspect_heads_v1(
            k.solo, v_tasks, v_queues, v_not_queues, v_not_tenants, p_now) h WHERE h.id IS NOT NULL)
    THEN
        RETURN p_now;
    END IF;
    RETURN least(
        outlast_next_suspect_due_v1(1, v_tasks, v_queues, v_not_queues, v_not_tenants, p_now),
        outlast_next_suspect_due_v1(2, v_tasks, v_queues, v_not_queues, v_not_tenants, p_now));
EXCEPTION WHEN data_exception THEN
    RETURN p_now;
END
$$;
