-- Which of the jobs $1 hold the text $2 in their arguments and the text $3 in "OUTCOME: MESSAGE" of their last
-- closed attempt, and have ended, begun or been enqueued in the last $4 seconds; NULL lets all pass. Reads only, and
-- only these rows. In collation "C" lower() changes A to Z alone, as on SQLite.
SELECT j.id FROM outlast_jobs j
WHERE j.id = ANY($1::bigint[])
  AND ($2::text IS NULL OR strpos(lower(j.args COLLATE "C"), lower($2 COLLATE "C")) > 0)
  AND ($4::float8 IS NULL
       OR coalesce(j.ended_at, j.started_at, j.enqueued_at) >= statement_timestamp() - make_interval(secs => $4))
  AND ($3::text IS NULL
       OR (SELECT strpos(lower((a.outcome || ': ' || a.message) COLLATE "C"), lower($3 COLLATE "C"))
           FROM outlast_attempts a WHERE a.job_id = j.id ORDER BY a.number DESC, a.token DESC LIMIT 1) > 0)
ORDER BY j.id DESC
