-- Reads for people and screens, without locks. functions/NAME.sql argues why a call of a function is right against a
-- concurrent claim, reap and late worker.

-- name: children
-- Read the children of a job from the n-th one (:first) to the :last one, in their order: as many as have :bytes of
-- results in all, but at least one.
SELECT c.n, c.id, c.task, c.state, c.result
FROM (SELECT 0 - d.place AS n, d.upstream_id AS id, j.task, j.state, j.result,
             sum(coalesce(octet_length(j.result), 0)) OVER (ORDER BY d.place DESC) AS bytes
      FROM outlast_dependencies d LEFT JOIN outlast_jobs j ON j.id = d.upstream_id
      WHERE d.job_id = :job_id AND d.place BETWEEN 0 - :last AND 0 - :first) c
WHERE c.bytes <= :bytes OR c.n = :first ORDER BY c.n
-- name: search
-- Find which of these jobs contain the text :args in their arguments and the text :error in "OUTCOME: MESSAGE" of their
-- last closed attempt, and have ended, begun, or been requeued or enqueued in the last :within seconds; NULL lets all
-- pass. Encoded arguments never match, since a match would be chance. In collation "C" lower() changes A to Z alone.
--
-- The newest job is always read, and older ones as long as the arguments read have :size_max bytes or fewer in all
-- (their length is known without reading them). before: the last job read, if there are others.
WITH asked AS MATERIALIZED (
    SELECT j.id, j.args, coalesce(j.ended_at, j.started_at, j.requeued_at, j.enqueued_at) AS at,
           CASE WHEN :args::text IS NULL THEN 0 ELSE octet_length(j.args) END AS size
    FROM outlast_jobs j WHERE j.id = ANY(:ids::text::bigint[])
), looked AS MATERIALIZED (
    SELECT a.id, a.args, a.at, a.size
    FROM (SELECT *, sum(size) OVER (ORDER BY id DESC) AS read, row_number() OVER (ORDER BY id DESC) AS place
          FROM asked) a
    WHERE a.read <= :size_max::bigint OR a.place = 1
)
SELECT to_json(ARRAY(
           SELECT j.id FROM looked j
           WHERE (:args IS NULL OR strpos(lower(j.args COLLATE "C"), lower(:args COLLATE "C")) > 0
                                AND j.args NOT LIKE ' ["outlast:payload",%')
             AND (:within::float8 IS NULL OR j.at >= date_part('epoch', statement_timestamp()) - :within)
             AND (:error::text IS NULL
                  OR (SELECT strpos(lower((t.outcome || ': ' || t.message) COLLATE "C"), lower(:error COLLATE "C"))
                      FROM outlast_attempts t WHERE t.job_id = j.id ORDER BY t.number DESC, t.token DESC LIMIT 1) > 0)
           ORDER BY j.id DESC)) AS ids,
       CASE WHEN (SELECT count(*) FROM looked) < (SELECT count(*) FROM asked) THEN (SELECT min(id) FROM looked)
       END AS before,
       (SELECT coalesce(sum(size), 0) FROM looked)::bigint AS size

-- name: returns
-- Return whether a job that was cancelled because of others waits again soon, as these were requeued. It does if none
-- of its upstream jobs prevents that any more, nor its parent, and the parent is known: a discard forgets its children.
-- A requeue lets the first of its waiting jobs wait again; later claims do the others.
WITH RECURSIVE up (id) AS (
    SELECT :job_id::bigint
    UNION
    SELECT u.id FROM up JOIN outlast_jobs c ON c.id = up.id AND c.state = 'cancelled'
    CROSS JOIN LATERAL (
        SELECT d.upstream_id AS id FROM outlast_dependencies d WHERE d.job_id = c.id AND d.state = 3
        UNION ALL SELECT d.job_id FROM outlast_dependencies d WHERE d.upstream_id = c.id AND d.place < 0) u)
SELECT NOT EXISTS (
    SELECT FROM up LEFT JOIN outlast_jobs o ON o.id = ANY (ARRAY[up.id])
    WHERE o.id IS NULL OR o.state IN ('completed', 'dead') OR o.state = 'cancelled'
          AND (o.cancel_requested OR o.attempt_count > 0 OR o.key IS NOT NULL
               OR o.expires_at <= date_part('epoch', statement_timestamp())
               OR coalesce((SELECT d.job_id FROM outlast_dependencies d WHERE d.job_id = o.id AND d.state = 3 LIMIT 1),
                           (SELECT d.job_id FROM outlast_dependencies d WHERE d.upstream_id = o.id AND d.place < 0 LIMIT 1)) IS NULL)) AS found
-- name: circle
-- Return whether a job waits, over any number of others, for itself; at most :most jobs are checked. A job waits for
-- its upstream jobs, and in an ordered stream for the job that has begun there.
WITH RECURSIVE up (id) AS (
    SELECT upstream_id FROM outlast_dependencies WHERE job_id = :job_id AND state IN (0, 1, 4)
    UNION
    SELECT e.id FROM up CROSS JOIN LATERAL (
        SELECT d.upstream_id AS id FROM outlast_dependencies d WHERE d.job_id = up.id AND d.state IN (0, 1, 4)
        UNION ALL
        SELECT h.id FROM outlast_jobs o JOIN outlast_streams s ON s.id = o.stream
        JOIN outlast_jobs h ON h.id = ANY (ARRAY[s.holder]) AND h.stream = s.id AND h.ended_at IS NULL
        WHERE o.id = ANY (ARRAY[up.id]) AND o.ended_at IS NULL) e)
SELECT EXISTS (SELECT FROM (SELECT id FROM up LIMIT :most) f WHERE f.id = :job_id) AS found
-- name: steps
-- Read the kept steps of a job, in their order, without their values.
SELECT name, token, at, octet_length(value) AS bytes FROM outlast_steps WHERE job_id = :job_id ORDER BY at, name

-- name: wanted
SELECT outlast_wanted_v1(:queue) AS number

-- name: waiting
-- Each part uses one index and stops at :most; tasks are found by one probe each.
WITH RECURSIVE line (task) AS (
    (SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NULL
     ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1)
    UNION ALL
    SELECT n.task FROM line l CROSS JOIN LATERAL (
        SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NULL AND j.task > l.task
        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT 1) n
), streamed (task) AS (
    (SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NOT NULL
     ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1)
    UNION ALL
    SELECT n.task FROM streamed l CROSS JOIN LATERAL (
        SELECT j.task FROM outlast_jobs j WHERE j.position IS NOT NULL AND j.stream IS NOT NULL AND j.task > l.task
        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT 1) n
)
SELECT count(*) AS number FROM (
    SELECT 1 FROM line l CROSS JOIN LATERAL (
        SELECT FROM outlast_jobs j
        WHERE j.task = l.task AND j.queue = :queue::text AND j.position IS NOT NULL AND j.stream IS NULL
        ORDER BY j.task, j.queue, (-j.priority), j.position LIMIT :most::integer) a
    UNION ALL
    SELECT 1 FROM streamed l CROSS JOIN LATERAL (
        SELECT FROM outlast_jobs j
        WHERE j.task = l.task AND j.queue = :queue::text AND j.position IS NOT NULL AND j.stream IS NOT NULL
        ORDER BY j.task, j.queue, j.stream, coalesce(j.aged, j.position) LIMIT :most::integer) b
    UNION ALL
    SELECT 1 FROM (
        SELECT FROM outlast_jobs j
        WHERE j.queue = :queue::text AND j.state = 'queued' AND j.position IS NULL AND j.solo >= 0
        ORDER BY j.queue, j.run_at LIMIT :most::integer) d
    LIMIT :most::integer) c

-- name: token_last
-- Read the highest token ever drawn; 0: none. It belongs to no snapshot, so read it after the rows that it is compared
-- with.
SELECT coalesce(pg_sequence_last_value('outlast_token_seq'), 0) AS token
