-- The unfinished jobs that have these keys. The answer may be out of date at once, which does no harm:
-- that a job with the key was unfinished at some moment of the call is enough.
-- The digest is of the arguments as they are stored.
--
-- What is found is called accepted, so it must be as durable as what is stored. A commit whose client was lost
-- while it waited for a synchronous standby is visible before the standby has it, and one that only reads waits for
-- nothing. So this writes to the log: a message that means nothing, and nothing else. Its commit waits as any
-- does, and the log arrives in its order: with the message, the job is there.
SELECT key, id, task, encode(sha256(convert_to(args, 'UTF8')), 'hex') AS args_digest,
       pg_logical_emit_message(true, 'outlast', ''::text)::text AS noted
FROM outlast_jobs
WHERE key = ANY ($1::text[]) AND key IS NOT NULL AND ended_at IS NULL
