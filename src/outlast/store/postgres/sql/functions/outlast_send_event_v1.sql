-- Send an event: keep this value under its name, unless one is kept already; return whether it is kept. For programs in
-- any language (docs/flows.md), and for ours, which may have encoded the value.
--
-- The first of two senders is the one that commits first: the unique name makes the other wait for its commit. The notice
-- is part of the sender's transaction; why no job misses it: outlast_wake_v1. It waits for no job's row. An empty
-- notification makes every listener look.
--
-- It runs as its owner, as outlast_enqueue_v1 does. p_notify: false where nothing may listen.
CREATE FUNCTION outlast_send_event_v1(name text, value text DEFAULT 'null', p_encoded boolean DEFAULT false, p_notify boolean DEFAULT true)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET standard_conforming_strings = on
AS $$
#variable_conflict use_column
DECLARE
    v_value text := outlast_send_event_v1.value;
BEGIN
    IF (length(outlast_send_event_v1.name) BETWEEN 1 AND 190
        AND outlast_send_event_v1.name !~ '[\u0001-\u001f\u007f-\u00a0\u2028\u2029]') IS NOT TRUE THEN
        RAISE EXCEPTION 'the name of an event is a printable text of 1 to 190 characters' USING ERRCODE = '22023';
    END IF;
    IF v_value IS NULL THEN
        RAISE EXCEPTION 'the value of an event must be JSON' USING ERRCODE = '22023';
    END IF;
    IF NOT p_encoded THEN
        PERFORM v_value::json;
        PERFORM outlast_refuse_args_v1('{"value":' || v_value || '}');
        v_value := '[' || v_value || ']';
    END IF;
    INSERT INTO outlast_events AS e (name, value, at) VALUES (outlast_send_event_v1.name, v_value, clock_timestamp())
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO outlast_upstream_notices (job_id, event) VALUES (0, outlast_send_event_v1.name);
    IF p_notify THEN PERFORM pg_notify(outlast_channel_v1(), ''); END IF;
    RETURN true;
END
$$;
