-- Lock an attempt's job that is kept for no time (keep = 0), to delete it with all that is noted of it in the caller's own
-- transaction, by the statement after this one (outlast_forget_v1). Guarded and waited for as in complete.sql. Two
-- statements: the second sees what the first has waited for, such as the lines that the attempt's worker has just written.
SELECT id FROM outlast_jobs WHERE id = $1 AND token = $2 AND state = 'running' AND keep <= 0 FOR UPDATE
