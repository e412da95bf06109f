-- Insert the rows that are missing for the permits in these texts of needs. The caller has the keeper lock.
CREATE FUNCTION outlast_make_permits_v1(p_needs text[], p_now double precision) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO outlast_permits (id, name, key, touched_at)
    SELECT DISTINCT ON (u.permit) u.permit, u.name, u.key, p_now
    FROM (SELECT DISTINCT t.needs FROM unnest(p_needs) AS t (needs)) d
    CROSS JOIN LATERAL outlast_needs_v1(d.needs) w
    CROSS JOIN LATERAL unnest(w.permits, w.names, w.keys) AS u (permit, name, key)
    WHERE (SELECT o.id FROM outlast_permits o WHERE o.id = u.permit ORDER BY o.id DESC, o.version DESC LIMIT 1) IS NULL;
END
$$;
