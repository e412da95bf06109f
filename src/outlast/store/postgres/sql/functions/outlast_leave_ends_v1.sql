-- Leave notices of attempts that have ended, as outlast_note_v1 does: p_streams names the stream of each attempt. The
-- caller has ended the attempts in this transaction, and has not folded their ends.
CREATE FUNCTION outlast_leave_ends_v1(p_streams bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_streams <> '{}' THEN
        INSERT INTO outlast_notices (stream, ended) SELECT u, count(*) FROM unnest(p_streams) AS u GROUP BY u;
    END IF;
END
$$;
