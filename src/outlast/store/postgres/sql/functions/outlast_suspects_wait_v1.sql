-- The largest kind of solo run, up to p_most, that a due suspect of these requests' tasks and queues waits for; 0
-- if there is none. Runs inside outlast_claim_v1, under the planner settings of outlast_exchange_v1; reads only.
CREATE FUNCTION outlast_suspects_wait_v1(
    p_most integer, p_tasks text[], p_queues text[], p_not_queues text[], p_not_tenants text[],
    p_now timestamptz) RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    FOR v_kind IN REVERSE p_most..1 LOOP
        FOR v_room IN 1..cardinality(p_tasks) LOOP
            IF outlast_first_suspect_v1(
                v_kind, p_tasks[v_room]::text[], p_queues[v_room]::text[], p_not_queues,
                p_not_tenants, p_now) IS NOT NULL
            THEN
                RETURN v_kind;
            END IF;
        END LOOP;
    END LOOP;
    RETURN 0;
END
$$;
