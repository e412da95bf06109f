-- Tell listeners that wait for their turn what became of wake-ups, as taken:CLAIMED:KIND:FOLLOWED:DRAWN. A wake-up is
-- known by its position; p_wakes are the positions that the worker had heard when it asked. CLAIMED are those of them
-- that this exchange has claimed, for all listeners. FOLLOWED and DRAWN are sent only if each request for ordinary
-- jobs has found the end of the line: then a worker of this KIND (NULL: of no kind) need not look for these wake-ups,
-- nor for positions that were drawn before the look (up to DRAWN).
--
-- p_stopped: something other than the end of the line stopped the look. p_floor: the highest of the floors from which
-- the look has read; NULL: it has read everything. A long transaction can leave a job below a floor, so a look from
-- floors has found no end if it claimed nothing, or if it did not claim the job of a wake-up below the highest floor.
--
-- Right against what happens at the same time: a wake-up is heard after the commit of its jobs, so this look has seen
-- them; this notification is sent only if the claim commits; and a wake-up that is heard later is not among p_wakes.
CREATE FUNCTION outlast_followed_v1(
    p_wakes bigint[], p_places bigint[], p_kind text, p_drawn bigint,
    p_limits integer[], p_solos integer[], p_counts integer[], p_stopped boolean,
    p_floor bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_at_end boolean := p_kind IS NOT NULL AND NOT p_stopped AND NOT EXISTS (
        SELECT FROM unnest(p_limits, p_solos, p_counts) AS r (most, solo, count)
        WHERE r.solo = 0 AND r.count >= r.most)
        AND (p_floor IS NULL OR (cardinality(p_places) > 0 AND NOT EXISTS (
            SELECT FROM unnest(p_wakes) AS h (place)
            WHERE h.place < p_floor AND (h.place = ANY (p_places)) IS NOT TRUE)));
BEGIN
    PERFORM outlast_tell_v1('taken:'
        || array_to_string(ARRAY(SELECT unnest(p_wakes) INTERSECT SELECT unnest(p_places)), ',') || ':'
        || CASE WHEN v_at_end THEN
               p_kind || ':' || array_to_string(p_wakes, ',') || ':' || p_drawn ELSE '::' END);
END
$$;
