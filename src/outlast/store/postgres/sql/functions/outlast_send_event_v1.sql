-- Send an event from any language (docs/flows.md), through outlast_keep_event_v1. It refuses all that the Python
-- function refuses. It runs as its owner, for roles to which it is granted.
CREATE FUNCTION outlast_send_event_v1(name text, value text DEFAULT 'null') RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path FROM CURRENT
SET standard_conforming_strings = on
AS $$
BEGIN
    IF value IS NULL THEN
        RAISE EXCEPTION 'the value of an event must be JSON' USING ERRCODE = '22023';
    END IF;
    PERFORM value::json;
    PERFORM outlast_refuse_args_v1('{"value":' || value || '}');
    RETURN outlast_keep_event_v1(name, '[' || value || ']');
END
$$;
