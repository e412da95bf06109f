-- Leave a notice of attempts that have ended, as outlast_note_v1 does: p_streams names the stream of each one. The caller
-- has ended them in this transaction, and did not fold them.
CREATE FUNCTION outlast_leave_ends_v1(p_streams bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_streams <> '{}' THEN
        INSERT INTO outlast_notices (stream, ended) SELECT u, count(*) FROM unnest(p_streams) AS u GROUP BY u;
    END IF;
END
$$;
