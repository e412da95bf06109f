-- Admit one migrator at a time: whether this one is it. Held to the end of the transaction, so that it
-- also works behind a pooler; a migrator that had to wait looks again at what is applied ("outlast" as a
-- number). Any role that may connect can hold this lock. That stops migrations and nothing else:
-- workers that find their schema do not ask for it, and a migrator is told who holds it.
SELECT pg_try_advisory_xact_lock(x'6f75746c617374'::bigint)
