-- Tell listeners that wait for their turn what became of wake-ups: the positions by which those are known that
-- a worker had heard when it asked (p_wakes), as taken:CLAIMED:KIND:FOLLOWED:DRAWN. CLAIMED of them have been
-- claimed, for all; and, if each request for ordinary jobs has found the end of the line, a worker of this kind
-- (NULL: of none) need not look for any of them, nor for positions that were drawn before the look. p_stopped: the
-- look was ended by something else. p_floor: the highest of the floors from which it has read; NULL: it has read all. A job
-- may be below a floor, if its transaction was long: so a look from floors that claimed nothing, or not the job of a wake-up
-- that is below one, has found no end.
-- Right against what happens beside it: a wake-up is heard after the commit of its jobs, so this look has seen
-- them; it is sent only if the claim is committed; and what is heard later is not among p_wakes.
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
    PERFORM pg_notify(outlast_channel_v1(), 'taken:'
        || array_to_string(ARRAY(SELECT unnest(p_wakes) INTERSECT SELECT unnest(p_places)), ',') || ':'
        || CASE WHEN v_at_end THEN
               p_kind || ':' || array_to_string(p_wakes, ',') || ':' || p_drawn ELSE '::' END);
END
$$;
