-- Lanes that a claim is about to read (outlast_stretch_v1), in their order, without those of the queues that it
-- passes over. Runs inside outlast_claim_v1, which says under 7 what for; the others are as they were.
CREATE FUNCTION outlast_but_v1(
    p_not_queues text[], INOUT queues text[], INOUT tasks text[], INOUT ranks smallint[],
    INOUT floors bigint[], INOUT mixed boolean[])
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(l.queue ORDER BY l.at), array_agg(l.task ORDER BY l.at),
           array_agg(l.rank ORDER BY l.at), array_agg(l.low ORDER BY l.at),
           array_agg(l.alike ORDER BY l.at)
    INTO queues, tasks, ranks, floors, mixed
    FROM unnest(queues, tasks, ranks, floors, mixed)
         WITH ORDINALITY AS l (queue, task, rank, low, alike, at)
    WHERE l.queue <> ALL (p_not_queues);
END
$$;
