-- Keep this value, a list of one value as JSON or encoded (payload/payloads.py), under the name of an event, unless a
-- value is kept already; return whether this one is kept.
--
-- Of two senders, the first to commit wins: the unique name makes the other wait for its commit. The notice is part of
-- the sender's transaction; outlast_wake_v1 argues why no job misses it. An empty notification makes every listener
-- look; p_notify: false where nothing may listen. This runs as its owner, for our own programs.
CREATE FUNCTION outlast_keep_event_v1(p_name text, p_value text, p_notify boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET standard_conforming_strings = on
AS $$
BEGIN
    IF (length(p_name) BETWEEN 1 AND 190 AND p_name !~ '[\u0001-\u001f\u007f-\u00a0\u2028\u2029]') IS NOT TRUE THEN
        RAISE EXCEPTION 'the name of an event is a printable text of 1 to 190 characters' USING ERRCODE = '22023';
    END IF;
    IF octet_length(p_value) > 25165824 THEN
        RAISE EXCEPTION 'the value of an event has % bytes; 25165824 are allowed', octet_length(p_value) USING ERRCODE = '22000';
    END IF;
    IF json_typeof(p_value::json) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'the value of an event must be kept as a list with one value as JSON' USING ERRCODE = '22000';
    END IF;
    INSERT INTO outlast_events (name, value, at) VALUES (p_name, p_value, date_part('epoch', clock_timestamp())) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO outlast_upstream_notices (job_id, event) VALUES (0, p_name);
    IF p_notify THEN PERFORM pg_notify(outlast_channel_v1(), ''); END IF;
    RETURN true;
END
$$;
