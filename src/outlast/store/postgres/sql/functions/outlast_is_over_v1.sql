-- Return whether all jobs that waited for this one have ended, so that none needs its result any more. A dependency
-- that another session has stored and not committed is not seen: such a job may find its upstream job gone, which
-- counts as ended.
CREATE FUNCTION outlast_is_over_v1(p_id bigint) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT NOT EXISTS (SELECT FROM outlast_dependencies d JOIN outlast_jobs g ON g.id = d.job_id
                       WHERE d.upstream_id = p_id AND g.ended_at IS NULL)
$$;
