-- Dependencies of blocked jobs (tables/outlast_dependencies.sql): stored with the jobs, resolved by outlast_follow_v1,
-- and read for the results that the jobs get.

-- name: upstream
-- Find jobs that others are to wait for, and how long they are kept. Reads only, and locks nothing, since the caller's
-- transaction may stay open for long: if a job ends, or is deleted, after this read, outlast_resolve_v1 finds that.
SELECT id, keep FROM outlast_jobs WHERE id = ANY ($1::text::bigint[])

-- name: depend
SELECT outlast_depend_v1($1::text::bigint[], $2::text::bigint[], $3::text::smallint[], $4::text::smallint[], $5::text::integer[])

-- name: adopt
-- Make stored jobs the children of a job: dependencies that are already met, in places below zero, by their ordinals.
-- So they keep a child until its parent has ended (outlast_is_over_v1), are not inputs, and one ordinal has one child
-- (the primary key). The caller holds the parent's row. A child that existed already, under its key, is kept from now
-- on; if another session holds it, a later call of outlast_resolve_v1 sets that, since nothing waits for a child's row.
WITH parent AS (UPDATE outlast_jobs SET awaited = true WHERE id = $1 AND NOT awaited
), old AS MATERIALIZED (
    SELECT j.id FROM outlast_jobs j WHERE j.id = ANY ($3::text::bigint[]) AND NOT j.awaited
), free AS MATERIALIZED (
    SELECT j.id FROM outlast_jobs j WHERE j.id IN (SELECT o.id FROM old o) FOR NO KEY UPDATE SKIP LOCKED
), kept AS (UPDATE outlast_jobs j SET awaited = true FROM free f WHERE j.id = f.id
), noted AS (
    INSERT INTO outlast_upstream_notices (job_id, is_new)
    SELECT o.id, true FROM old o WHERE o.id NOT IN (SELECT f.id FROM free f))
INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
SELECT $1, c.id, 1, 2, -$2::integer - c.n FROM unnest($3::text::bigint[]) WITH ORDINALITY AS c (id, n)

-- name: watch
-- Let the end of a running attempt wait for these children, and no others. Guarded by (id, token, running). Each child
-- is locked before it is read. A child that is not awaited is checked later by a notice, as in `depend`, and so is one
-- that another session holds: that may be its end, and the exchange of that end may already have read which jobs wait
-- for it (outlast_follow_v1). Any other end comes after this commit, and finds the child watched.
WITH held AS MATERIALIZED (
    SELECT id FROM outlast_jobs WHERE id = $1 AND token = $2 AND state = 'running' FOR NO KEY UPDATE
), child AS MATERIALIZED (
    SELECT j.id, j.awaited, j.ended_at IS NOT NULL AS has_ended FROM outlast_jobs j
    WHERE j.id = ANY ($3::text::bigint[]) AND EXISTS (SELECT FROM held) FOR NO KEY UPDATE OF j SKIP LOCKED
), watched AS (
    UPDATE outlast_dependencies d SET state = c.state
    FROM held h
    CROSS JOIN LATERAL (
        SELECT e.place, CASE WHEN u.id IS NULL OR k.has_ended THEN 2 WHEN k.awaited THEN 1 ELSE 0 END AS state
        FROM outlast_dependencies e
        LEFT JOIN unnest($3::text::bigint[]) AS u (id) ON u.id = e.upstream_id
        LEFT JOIN child k ON k.id = e.upstream_id
        WHERE e.job_id = h.id AND e.place < 0) c
    WHERE d.job_id = h.id AND d.place = c.place AND d.state <> c.state
    RETURNING d.upstream_id, d.state
), noted AS (
    INSERT INTO outlast_upstream_notices (job_id, is_new)
    SELECT DISTINCT w.upstream_id, true FROM watched w WHERE w.state = 0)
SELECT id FROM held

-- name: results
-- Read the results that claimed jobs get from their upstream jobs, in order; up to $2 bytes for each claimed job, and
-- how many there are. gone: the upstream job has completed and was deleted, since the claimed one had been cancelled
-- meanwhile. Once $3 bytes are full, each other job has one row, late, without a result. A separate trip, which few
-- claims need: if it fails, the claim counts as one whose reply was lost.
SELECT g.job_id, CASE WHEN NOT g.late THEN g.result END AS result, g.count, g.gone, g.late
FROM (
    SELECT f.*, u.n > 1 AND sum(f.bytes) OVER (ORDER BY u.n) > $3::bigint AS late
    FROM unnest($1::text::bigint[]) WITH ORDINALITY AS u (id, n)
    CROSS JOIN LATERAL (
        SELECT d.job_id, d.place, j.result, count(*) OVER () AS count, coalesce(octet_length(j.result), 4) AS bytes,
               row_number() OVER (ORDER BY d.place) AS step,
               min(d.upstream_id) FILTER (WHERE j.id IS NULL AND d.wants = 0) OVER () AS gone,
               sum(coalesce(octet_length(j.result), 4)) OVER (ORDER BY d.place) AS total
        FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
        WHERE d.job_id = u.id AND d.place >= 0) f) g
WHERE CASE WHEN g.late THEN g.step = 1 ELSE g.total <= $2::integer END
ORDER BY g.job_id, g.place
