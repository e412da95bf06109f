-- Enqueue from other languages: INSERT INTO outlast_enqueue_v1 (task, args, …) stores a job, and refuses all that the
-- Python enqueue refuses (docs/other-languages.md). The writer's transaction holds the write lock, so nothing races
-- with the search for a key. Jobs of a task with limits wait in streams, whose ids are hashes. SQLite has no hash, so
-- such tasks are refused, and so are tasks that no worker has announced, since they may have limits. Budgets are those
-- of a task without options, or those given.
CREATE VIEW outlast_enqueue_v1 AS
SELECT '' AS task, '{}' AS args, 'default' AS queue, 0 AS priority, 0.0 AS delay, 0.0 AS run_at,
       0.0 AS expires_at, '' AS key, '' AS tenant, 0 AS retries, 0.0 AS timeout,
       '[]' AS after, '[]' AS after_ended, 0.0 AS once_per
WHERE 0;
CREATE TRIGGER outlast_enqueue_v1_insert INSTEAD OF INSERT ON outlast_enqueue_v1
BEGIN
    -- First end an expired holder of the key; one with keep = 0 is left to the pruner, for which it is due at once.
    UPDATE outlast_jobs SET state = 'cancelled', ended_at = n.now, position = NULL
    FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now) AS n
    WHERE key = NEW.key AND ended_at IS NULL AND state IN ('queued', 'blocked') AND expires_at <= n.now;
    SELECT CASE
        WHEN typeof(NEW.task) <> 'text' OR length(NEW.task) NOT BETWEEN 1 AND 200
            OR instr(CAST(NEW.task AS BLOB), x'00')
            OR NEW.task GLOB '*[' || char(1) || '-' || char(32) || ',' || char(127, 133, 160, 5760, 8192)
                || '-' || char(8202, 8232, 8233, 8239, 8287, 12288) || ']*'
        THEN RAISE(ABORT, 'task must be a text of 1 to 200 characters without blanks and commas')
        WHEN typeof(coalesce(NEW.queue, 'default')) <> 'text' OR length(NEW.queue) NOT BETWEEN 1 AND 200
            OR instr(CAST(NEW.queue AS BLOB), x'00')
            OR NEW.queue GLOB '*[' || char(1) || '-' || char(32) || ',' || char(127, 133, 160, 5760, 8192)
                || '-' || char(8202, 8232, 8233, 8239, 8287, 12288) || ']*'
        THEN RAISE(ABORT, 'queue must be a text of 1 to 200 characters without blanks and commas')
        WHEN typeof(coalesce(NEW.key, '')) <> 'text' OR length(NEW.key) NOT BETWEEN 1 AND 500
            OR instr(CAST(NEW.key AS BLOB), x'00')
        THEN RAISE(ABORT, 'key must be a text of 1 to 500 characters')
        WHEN typeof(coalesce(NEW.tenant, '')) <> 'text' OR length(NEW.tenant) NOT BETWEEN 1 AND 500
            OR instr(CAST(NEW.tenant AS BLOB), x'00')
        THEN RAISE(ABORT, 'tenant must be a text of 1 to 500 characters')
        WHEN typeof(coalesce(NEW.priority, 0)) <> 'integer' OR NEW.priority NOT BETWEEN -100 AND 100
        THEN RAISE(ABORT, 'priority must be from -100 to 100')
        WHEN typeof(coalesce(NEW.delay, 0)) NOT IN ('integer', 'real') OR NEW.delay NOT BETWEEN 0 AND 3153600000
        THEN RAISE(ABORT, 'delay must be seconds from 0 to 3153600000')
        WHEN typeof(coalesce(NEW.run_at, 0)) NOT IN ('integer', 'real')
            OR NEW.run_at NOT BETWEEN -62135510400 AND 253402128000
        THEN RAISE(ABORT, 'run_at must be seconds since 1970, in the years 1 to 9999')
        WHEN typeof(coalesce(NEW.expires_at, 0)) NOT IN ('integer', 'real') OR NEW.expires_at > 253402128000
            OR NEW.expires_at <= coalesce(NEW.run_at, (julianday('now') - 2440587.5) * 86400.0
                                                      + coalesce(NEW.delay, 0))
        THEN RAISE(ABORT, 'expires_at must be seconds since 1970, after the job is due')
        WHEN typeof(coalesce(NEW.retries, 0)) <> 'integer' OR NEW.retries NOT BETWEEN 0 AND 10000
        THEN RAISE(ABORT, 'retries must be from 0 to 10000')
        WHEN typeof(coalesce(NEW.timeout, 0)) NOT IN ('integer', 'real') OR NEW.timeout <= 0
            OR NEW.timeout > 3153600000
        THEN RAISE(ABORT, 'timeout must be seconds above 0, at most 3153600000')
        WHEN typeof(coalesce(NEW.once_per, 0)) NOT IN ('integer', 'real') OR NEW.once_per <= 0
            OR NEW.once_per > 3153600000
        THEN RAISE(ABORT, 'once_per must be seconds above 0, at most 3153600000')
        WHEN NEW.once_per IS NOT NULL
            AND (NEW.key IS NULL OR coalesce(NEW.after, '[]') <> '[]' OR coalesce(NEW.after_ended, '[]') <> '[]')
        THEN RAISE(ABORT, 'once_per needs a key, and does not go with after and after_ended')
        WHEN NEW.key LIKE 'outlast:schedule:%' OR NEW.key LIKE 'outlast:backfill:%'
        THEN RAISE(ABORT, 'key begins as the keys of schedules do: choose one that does not begin with outlast:schedule: or outlast:backfill:')
        WHEN NEW.task = 'outlast.shell' THEN RAISE(ABORT, 'commands cannot be enqueued by SQL')
        WHEN typeof(coalesce(NEW.args, '{}')) <> 'text' OR instr(CAST(NEW.args AS BLOB), x'00')
            OR NOT json_valid(coalesce(NEW.args, '{}')) OR json_type(coalesce(NEW.args, '{}')) <> 'object'
        THEN RAISE(ABORT, 'args must be a JSON object: the arguments by name')
        WHEN coalesce(json_type(NEW.after), 'array') <> 'array' OR coalesce(json_type(NEW.after_ended), 'array') <> 'array'
        THEN RAISE(ABORT, 'after and after_ended must be JSON arrays of the ids of jobs')
        WHEN EXISTS (
            SELECT 1 FROM (SELECT value FROM json_each(NEW.after) UNION ALL SELECT value FROM json_each(NEW.after_ended)) AS e
            WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.id = e.value AND (j.keep IS NULL OR j.keep > 0)))
        THEN RAISE(ABORT, 'after and after_ended must name jobs that are there, and stay when they end')
        WHEN NOT EXISTS (SELECT 1 FROM outlast_tasks AS t WHERE t.name = NEW.task)
        THEN RAISE(ABORT, 'no worker has announced this task yet, so its limits are not known: start one that knows it')
        WHEN EXISTS (
            SELECT 1 FROM outlast_tasks AS t
            WHERE t.name = NEW.task AND (t.limits <> '[]' OR t.fair <> 0 OR t.aging IS NOT NULL))
        THEN RAISE(ABORT, 'the task has limits, fair or aging: SQL of SQLite cannot enqueue it, a Python program can')
        WHEN EXISTS (
            SELECT 1 FROM outlast_jobs AS j WHERE j.key = NEW.key AND j.ended_at IS NULL AND j.task <> NEW.task)
        THEN RAISE(ABORT, 'the key belongs to an unfinished job of another task')
    END;
    INSERT INTO outlast_refuse_args_v1 (args) VALUES (NEW.args);
    UPDATE outlast_sequences SET value = value + 1 WHERE name IN ('job', 'position');
    INSERT INTO outlast_jobs
        (id, task, queue, args, priority, run_at, enqueued_at, position, policy, timeout, tenant, expires_at, key)
    SELECT (SELECT value FROM outlast_sequences WHERE name = 'job'), NEW.task, coalesce(NEW.queue, 'default'),
           coalesce(NEW.args, '{}'), coalesce(NEW.priority, 0), due, now,
           CASE WHEN due <= now THEN (SELECT value FROM outlast_sequences WHERE name = 'position') END,
           json_patch('{}', json_object('retries', NEW.retries, 'timeout', NEW.timeout)), NEW.timeout, NEW.tenant,
           NEW.expires_at, NEW.key
    FROM (SELECT now, coalesce(NEW.run_at, now + coalesce(NEW.delay, 0)) AS due
          FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now))
    WHERE (NEW.key IS NULL
           OR NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.key = NEW.key AND j.ended_at IS NULL))
        AND (NEW.once_per IS NULL
             OR NOT EXISTS (SELECT 1 FROM outlast_windows AS w WHERE w.key = NEW.key AND w.task = NEW.task AND w.until > now
                            AND w.until <= (CAST(now / NEW.once_per AS INTEGER) + 1) * NEW.once_per));
    INSERT INTO outlast_windows (key, task, job_id, until)
    SELECT NEW.key, NEW.task, j.id, (CAST(j.enqueued_at / NEW.once_per AS INTEGER) + 1) * NEW.once_per
    FROM outlast_sequences AS s JOIN outlast_jobs AS j ON j.id = s.value
    WHERE s.name = 'job' AND NEW.once_per IS NOT NULL
    ON CONFLICT (key, task) DO UPDATE SET job_id = excluded.job_id, until = excluded.until;
    -- Its dependencies, unless an unfinished job has its key; as in dependencies.sql.
    INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
    SELECT j.id, e.value, min(e.wants), 1, min(e.place)
    FROM outlast_jobs AS j, (
        SELECT value, 0 AS wants, key AS place FROM json_each(NEW.after)
        UNION ALL SELECT value, 1, key + 1000000 FROM json_each(NEW.after_ended)) AS e
    WHERE j.id = (SELECT s.value FROM outlast_sequences AS s WHERE s.name = 'job')
    GROUP BY e.value;
    UPDATE outlast_jobs SET state = 'blocked', position = NULL
    WHERE id = (SELECT s.value FROM outlast_sequences AS s WHERE s.name = 'job')
      AND EXISTS (SELECT 1 FROM outlast_dependencies AS d WHERE d.job_id = outlast_jobs.id);
    UPDATE outlast_jobs SET awaited = 1
    WHERE awaited = 0 AND id IN (
        SELECT d.upstream_id FROM outlast_dependencies AS d, outlast_sequences AS s WHERE s.name = 'job' AND d.job_id = s.value);
    INSERT INTO outlast_upstream_notices (job_id)
    SELECT j.id FROM outlast_dependencies AS d, outlast_sequences AS s, outlast_jobs AS j
    WHERE s.name = 'job' AND d.job_id = s.value AND j.id = d.upstream_id AND j.ended_at IS NOT NULL;
END;
