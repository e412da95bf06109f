-- Tell listeners that wait for their turn what became of wake-ups, as taken:CLAIMED:KIND:FOLLOWED:DRAWN. A wake-up is
-- known by its position; the caller had heard those of p_req.wakes when it asked. CLAIMED: the wake-ups among these
-- whose jobs this exchange has claimed (p_places), for all listeners. FOLLOWED and DRAWN are sent only if each request
-- for ordinary jobs has found the end of the line: then a worker of the caller's kind (NULL: of no kind) can skip these
-- wake-ups, and the positions that were drawn before the look (up to DRAWN).
--
-- p_is_more: something other than the end of the line stopped the look. A long transaction can leave a job below a
-- floor, so a look from the floors alone has found no end if it claimed nothing, or if it did not claim the job of a
-- wake-up below the highest floor.
--
-- Right against concurrent events: a wake-up is heard after the commit of its jobs, so this look has seen them; this
-- notification is sent only if the claim commits; and a wake-up that is heard later is not among these.
CREATE FUNCTION outlast_followed_v1(
    p_req outlast_claim_request_v1, p_drawn bigint, p_places bigint[], p_is_more boolean) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_floor bigint := (SELECT nullif(max(u.floor), 0) FROM unnest(p_req.lane_floors) AS u (floor));
    v_at_end boolean := p_req.kind IS NOT NULL AND NOT p_is_more
        AND (p_req.look_to IS NOT NULL OR v_floor IS NULL OR (cardinality(p_places) > 0 AND NOT EXISTS (
            SELECT FROM unnest(p_req.wakes) AS h (place)
            WHERE h.place < v_floor AND (h.place = ANY (p_places)) IS NOT TRUE)));
BEGIN
    PERFORM pg_notify(outlast_channel_v1(), 'taken:'
        || array_to_string(ARRAY(SELECT unnest(p_req.wakes) INTERSECT SELECT unnest(p_places)), ',') || ':'
        || CASE WHEN v_at_end THEN
               p_req.kind || ':' || array_to_string(p_req.wakes, ',') || ':' || p_drawn ELSE '::' END);
END
$$;
