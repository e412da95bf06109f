-- Refused writes, newest first; the attempt of that token shows who tried. Reads only.
SELECT r.id, r.job_id, r.token, r.verb, extract(epoch FROM r.at)::float8 AS at, r.late_by,
       coalesce(
           (SELECT a.worker FROM outlast_attempts a
            WHERE a.token = r.token AND a.job_id = r.job_id),
           (SELECT w.name FROM outlast_jobs j JOIN outlast_workers w ON w.id = j.completed_by
            WHERE j.id = r.job_id AND j.token = r.token)) AS worker
FROM outlast_refusals r
WHERE ($1::bigint IS NULL OR r.job_id = $1) AND ($3::bigint IS NULL OR r.id < $3)
ORDER BY r.id DESC LIMIT $2::integer
