-- Add the ticks of a spec that are later than p_since and not later than p_until to the owed ticks of a schedule, as a
-- line (store/schedules.py, Owed). Pure. Ticks are whole seconds, so whole seconds bound them. If a line would exceed
-- p_most characters, after many edits while no worker looks, it is left out.
CREATE FUNCTION outlast_owe_ticks_v1(
    p_owed text, p_since double precision, p_until double precision, p_spec text, p_most integer)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT CASE WHEN floor(p_until) > floor(p_since) AND length(p_owed) + length(p_spec) <= p_most
                THEN p_owed || floor(p_since)::bigint || ' ' || floor(p_until)::bigint || ' ' || p_spec || E'\n'
                ELSE p_owed END
$$;
