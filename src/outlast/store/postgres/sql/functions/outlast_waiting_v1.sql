-- Find the jobs that may need an announcement: the first jobs of each task in each queue's line that no worker has
-- taken for p_grace seconds, the first job of each open stream (p_limit of them), and due jobs that are not in the
-- line.
--
-- p_limit jobs of each task and queue are read, or fewer, so that there are 10,000 in all or one of each: jobs of a
-- task that is paused or not served hide no others. The first and the last p_limit of the due scheduled jobs are read:
-- jobs that stay due must not hide newly due ones. The first row holds the number of active workers, and the seconds to
-- the next scheduled job within a minute. A job that is claimed meanwhile is announced needlessly.
CREATE FUNCTION outlast_waiting_v1(p_grace double precision, p_limit integer)
RETURNS TABLE (id bigint, queue text, task text, token bigint, seconds double precision,
               "position" bigint)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := date_part('epoch', clock_timestamp());
    v_first double precision := outlast_first_due_v1(v_now);  -- also keeps the floor that v_from reads
    v_from double precision := outlast_read_from_v1('outlast_jobs_run_at'::regclass, v_now);
BEGIN
    RETURN QUERY
    SELECT NULL::bigint, NULL::text, NULL::text,
           (SELECT count(*) FROM outlast_workers w WHERE w.status = 'active'),
           (SELECT j.run_at - v_now FROM outlast_jobs j
            WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
              AND j.run_at > v_now AND j.run_at <= v_now + 60
            ORDER BY j.run_at LIMIT 1), NULL::bigint;
    RETURN QUERY
    WITH lane AS MATERIALIZED (
        SELECT l.task, l.queue, l.rank
        FROM (SELECT DISTINCT l.task, l.queue, -l.priority AS rank FROM outlast_lanes l) l
        CROSS JOIN LATERAL (
            SELECT FROM outlast_jobs j
            WHERE j.task = l.task AND j.queue = l.queue AND (-j.priority) = l.rank
              AND j.position IS NOT NULL AND j.stream IS NULL
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n
    ), share AS (
        SELECT greatest(1, least(p_limit, 10000 / greatest(1, count(DISTINCT (l.task, l.queue))))) AS most FROM lane l
    ), head AS (
        SELECT h.*, row_number() OVER (PARTITION BY l.task, l.queue ORDER BY l.rank, h.position) AS place
        FROM lane l
        CROSS JOIN LATERAL (
            SELECT j.* FROM outlast_jobs j
            WHERE j.task = l.task AND j.queue = l.queue AND (-j.priority) = l.rank
              AND j.position IS NOT NULL AND j.stream IS NULL
            ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT (SELECT s.most FROM share s)) h)
    SELECT f.id, f.queue, f.task, coalesce(f.token, 0), v_now - f.run_at, f.position
    FROM head f
    WHERE f.place <= (SELECT s.most FROM share s) AND f.run_at <= v_now - p_grace
    UNION ALL
    SELECT f.id, f.queue, f.task, coalesce(f.token, 0), v_now - f.run_at, 0
    FROM ((SELECT j.id, j.queue, j.task, j.token, j.run_at FROM outlast_jobs j
           WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
             AND j.run_at >= v_from AND j.run_at <= v_now
           ORDER BY j.run_at LIMIT p_limit)
          UNION
          (SELECT j.id, j.queue, j.task, j.token, j.run_at FROM outlast_jobs j
           WHERE j.state = 'queued' AND j.position IS NULL AND abs(j.solo) >= 0
             AND j.run_at >= v_from AND j.run_at <= v_now
           ORDER BY j.run_at DESC LIMIT p_limit)) f
    UNION ALL
    SELECT f.id, f.queue, f.task, coalesce(f.token, 0), v_now - f.run_at, f.position
    FROM (SELECT * FROM outlast_streams s WHERE s.blocked IS NULL AND NOT s.idle
          ORDER BY s.task, s.queue, s.rank, s.turn LIMIT p_limit) s
    CROSS JOIN LATERAL (
        SELECT j.* FROM outlast_jobs j
        WHERE j.task = s.task AND j.queue = s.queue AND j.stream = s.id
          AND j.position IS NOT NULL
        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) f
    WHERE f.run_at <= v_now - p_grace;
END
$$;
