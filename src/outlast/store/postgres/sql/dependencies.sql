-- What blocked jobs wait for (tables/outlast_dependencies.sql): stored with them, resolved by outlast_resolve_v1, and
-- read for the results that they get.

-- name: upstream
-- Find jobs that others are to wait for, and how long they are kept. Reads only, and locks nothing, since the caller's
-- transaction may stay open for long: a job that ends, or is deleted, after this look is found by outlast_resolve_v1.
SELECT id, keep FROM outlast_jobs WHERE id = ANY ($1::bigint[])

-- name: depend
-- Store what blocked jobs wait for. An upstream job that the same transaction has stored is awaited already (state 1);
-- of another, a notice has its end looked for once this transaction has been committed (outlast_resolve_v1).
WITH stored AS (
    INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
    SELECT h.job_id, h.upstream_id, h.wants, h.state, h.place
    FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::smallint[], $5::integer[])
         AS h (job_id, upstream_id, wants, state, place))
INSERT INTO outlast_upstream_notices (job_id, is_new)
SELECT DISTINCT h.upstream_id, true FROM unnest($2::bigint[], $4::smallint[]) AS h (upstream_id, state) WHERE h.state = 0

-- name: results
-- The results that claimed jobs get of those that they waited for, in their order; of each job up to $2 bytes, and how
-- many there are. A separate trip, which few claims need: if it fails, the claim counts as one whose reply was lost. The
-- jobs upstream have ended, and stay while the claimed one has not (outlast_is_over_v1).
SELECT f.job_id, f.result, f.count
FROM unnest($1::bigint[]) AS u (id)
CROSS JOIN LATERAL (
    SELECT d.job_id, d.place, j.result, count(*) OVER () AS count,
           sum(coalesce(octet_length(j.result), 4)) OVER (ORDER BY d.place) AS total
    FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
    WHERE d.job_id = u.id) f
WHERE f.total <= $2::integer
ORDER BY f.job_id, f.place
