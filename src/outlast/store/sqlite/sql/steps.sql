-- Steps of attempts: each (job, step) keeps its value once, and later attempts read it.

-- name: find
-- One read, guarded by (id, token, running). A step of an earlier attempt was committed before the claim of this one,
-- or was refused, so after this read only the attempt itself can add a value.
SELECT CAST(s.value AS TEXT) FROM outlast_jobs AS j
LEFT JOIN outlast_steps AS s ON s.job_id = j.id AND s.name = :name
WHERE j.id = :job_id AND j.token = :token AND j.state = 'running'

-- name: keep
-- Under the write lock, also in the task's own transaction, guarded like all writes of an attempt; a value that already
-- exists is this very one (outlast_keep_steps_v1.sql).
INSERT INTO outlast_steps (job_id, name, token, value, at)
SELECT id, :name, token, :value, :now FROM outlast_jobs
WHERE id = :job_id AND token = :token AND state = 'running'
ON CONFLICT DO NOTHING
-- name: forgive
UPDATE outlast_jobs SET losses = 0 WHERE id = :job_id AND losses > 0
