-- Steps of attempts: values that are kept once for each (job, step), and that later attempts get.

-- name: find
-- Look for the value of a step: one read, guarded by (id, token, running). Here one commit follows another. A step
-- of an earlier attempt was committed before that attempt was closed, and so before the claim of this one, or was
-- refused. So no value can appear after this look but the attempt's own.
SELECT CAST(s.value AS TEXT) FROM outlast_jobs AS j
LEFT JOIN outlast_steps AS s ON s.job_id = j.id AND s.name = :name
WHERE j.id = :job_id AND j.token = :token AND j.state = 'running'

-- name: keep
-- Keep the value of a step, under the write lock, also in the task's own transaction. Guarded by (id, token, running):
-- a late worker's step finds no row. One value for each (job, step), by the primary key: a value that is there already
-- is this very one, whose answer was lost, since the attempt has looked before and uses each name once.
INSERT INTO outlast_steps (job_id, name, token, value, at)
SELECT id, :name, token, :value, :now FROM outlast_jobs
WHERE id = :job_id AND token = :token AND state = 'running'
ON CONFLICT DO NOTHING
-- name: forgive
-- A new value is progress: it forgives losses. It is new once for each job, so a job that is lost in the same step each
-- time is not forgiven.
UPDATE outlast_jobs SET losses = 0 WHERE id = :job_id AND losses > 0
