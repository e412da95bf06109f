-- Admit one migrator at a time. Held to the end of the transaction, so that it also works behind
-- a pooler; whoever waited looks again at what is applied ("outlast" as a number).
SELECT pg_advisory_xact_lock(x'6f75746c617374'::bigint)
