-- Which of the jobs $1 hold the text $2 in their arguments and the text $3 in "OUTCOME: MESSAGE" of their last
-- closed attempt, and have ended, begun, or been requeued or enqueued in the last $4 seconds; NULL lets all pass.
-- Encoded arguments hold no text: some would be there by chance. From the newest on, one is looked at, and more as
-- long as their arguments have $5 bytes or fewer in all (their length is known without reading them); before: the
-- last of those, where there are others. Reads only, and only these rows, each once. In collation "C" lower() changes A to Z alone, as on SQLite.
WITH asked AS MATERIALIZED (
    SELECT j.id, j.args, coalesce(j.ended_at, j.started_at, j.requeued_at, j.enqueued_at) AS at,
           CASE WHEN $2::text IS NULL THEN 0 ELSE octet_length(j.args) END AS size
    FROM outlast_jobs j WHERE j.id = ANY($1::bigint[])
), looked AS MATERIALIZED (
    SELECT a.id, a.args, a.at, a.size
    FROM (SELECT *, sum(size) OVER (ORDER BY id DESC) AS read, row_number() OVER (ORDER BY id DESC) AS place
          FROM asked) a
    WHERE a.read <= $5::bigint OR a.place = 1
)
SELECT ARRAY(
           SELECT j.id FROM looked j
           WHERE ($2 IS NULL OR strpos(lower(j.args COLLATE "C"), lower($2 COLLATE "C")) > 0
                                AND j.args NOT LIKE ' ["outlast:payload",%')
             AND ($4::float8 IS NULL OR j.at >= statement_timestamp() - make_interval(secs => $4))
             AND ($3::text IS NULL
                  OR (SELECT strpos(lower((t.outcome || ': ' || t.message) COLLATE "C"), lower($3 COLLATE "C"))
                      FROM outlast_attempts t WHERE t.job_id = j.id ORDER BY t.number DESC, t.token DESC LIMIT 1) > 0)
           ORDER BY j.id DESC) AS ids,
       CASE WHEN (SELECT count(*) FROM looked) < (SELECT count(*) FROM asked) THEN (SELECT min(id) FROM looked)
       END AS before,
       (SELECT coalesce(sum(size), 0) FROM looked)::bigint AS size
