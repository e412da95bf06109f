-- Count how many of these jobs, from the first on, fit into a number of bytes of arguments and checkpoints in all.
-- Runs inside outlast_claim_v1, which holds the locks on these rows: what is counted is what is sent.
CREATE FUNCTION outlast_within_v1(p_rows tid[], p_bytes bigint) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_count integer;
BEGIN
    SELECT count(*) INTO v_count
    FROM (SELECT sum(octet_length(j.args) + coalesce(octet_length(j.checkpoint), 0))
                     OVER (ORDER BY r.n) AS total
          FROM unnest(p_rows) WITH ORDINALITY AS r (row, n)
          JOIN outlast_jobs j ON j.ctid = r.row) s
    WHERE s.total <= p_bytes;
    RETURN v_count;
END
$$;
