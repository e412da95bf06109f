-- The unfinished jobs that have these keys. Reads only; the answer may be out of date at once,
-- which does no harm: that a job with the key was unfinished at some moment of the call is enough.
-- The digest is of the arguments as they are stored.
SELECT key, id, task, encode(sha256(convert_to(args, 'UTF8')), 'hex') AS args_digest
FROM outlast_jobs
WHERE key = ANY ($1::text[]) AND key IS NOT NULL AND ended_at IS NULL
