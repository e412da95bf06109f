-- Steps of attempts: each (job, step) keeps its value once, and later attempts read it.

-- name: find
-- Needs no lock, guarded by (id, token, running). A step of an earlier attempt was committed before that attempt lost
-- its row, and so before this attempt's claim, or was refused. So after this read only the attempt itself can add a
-- value.
SELECT h.n, j.id IS NOT NULL AS current, s.value
FROM unnest($1::text::bigint[], $2::text::bigint[], $3::text[]) WITH ORDINALITY AS h (job_id, token, name, n)
LEFT JOIN outlast_jobs j ON j.id = h.job_id AND j.token = h.token AND j.state = 'running'
LEFT JOIN outlast_steps s ON s.job_id = j.id AND s.name = h.name
ORDER BY h.n

-- name: keep
SELECT job_id, token, name, answer FROM outlast_keep_steps_v1($1::text::bigint[], $2::text::bigint[], $3, $4, $5)

-- name: keep_in
-- Keep a step in the task's own transaction. Guarded like `complete` in jobs.sql, and waits for the row like it. Until
-- the caller commits, the worker's exchange and a reaper skip the row, so the value is committed before a later attempt
-- can be claimed. New progress forgives losses, as in outlast_keep_steps_v1.
WITH locked AS MATERIALIZED (
    SELECT id FROM outlast_jobs WHERE id = $1 AND token = $2 AND state = 'running' FOR NO KEY UPDATE
), kept AS (
    INSERT INTO outlast_steps AS s (job_id, name, token, value, at)
    SELECT id, $3, $2, $4, date_part('epoch', clock_timestamp()) FROM locked
    ON CONFLICT DO NOTHING
    RETURNING s.job_id
), forgiven AS (
    UPDATE outlast_jobs j SET losses = 0 FROM kept WHERE j.id = kept.job_id AND j.losses > 0)
SELECT job_id FROM kept
