-- Raise an error unless a text can be a task's arguments: one JSON object that every reader of Outlast can read. jsonb
-- parses it, and refuses lone surrogates; it also refuses NULs, which are fine here, so they are removed from the copy
-- that is checked, after the escaped backslashes (\\u0000 is not a NUL).
CREATE FUNCTION outlast_refuse_args_v1(p_args text) RETURNS void
LANGUAGE plpgsql
SET standard_conforming_strings = on
AS $$
DECLARE
    v_bare text := replace(replace(p_args, '\\', ''), '\u0000', '');
    v_json jsonb;
BEGIN
    IF octet_length(p_args) > 1048576 THEN
        RAISE EXCEPTION 'args have % bytes of JSON; 1048576 are allowed', octet_length(p_args) USING ERRCODE = '22023';
    END IF;
    v_json := v_bare::jsonb;
    IF jsonb_typeof(v_json) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'args must be a JSON object: the arguments by name' USING ERRCODE = '22023';
    END IF;
    IF length(v_bare) - length(translate(v_bare, '[{', '')) > 100
       AND jsonb_path_exists(v_json, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")') THEN
        RAISE EXCEPTION 'lists and objects in args are more than 100 levels deep' USING ERRCODE = '22023';
    END IF;
    IF v_bare ~ '[eE][+]?[0-9]{3}|([0-9]{154}){2}' AND jsonb_path_exists(v_json,
           'strict $.** ? (@.type() == "number" && (@ > 1.797e308 || @ < -1.797e308))') THEN
        RAISE EXCEPTION 'args hold a number that is out of range' USING ERRCODE = '22023';
    END IF;
END
$$;
