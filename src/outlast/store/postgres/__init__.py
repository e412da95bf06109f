"""Jobs on PostgreSQL: one shared truth for workers on many machines.

backend.py       its entry among the kinds of stores
store.py         PostgresStore: the verbs
workers.py       its verbs about workers: rows, leases, and what they left behind
schedules.py     its verbs about schedules
actions.py       the verbs by which people act
records.py       the record of what they did
exchange.py      the hot path: hand in what ended and claim what is next, in one round trip
claim_floors.py  where a claim reads each lane from, and searches for new ones: it skips dead rows
enqueue.py       enqueues, on the store's own connection or in the caller's transaction
callers.py       callers' own connections: asyncpg, psycopg
pruning.py       deletes what ended long ago, and remembers where it stopped
inspector.py     how the inspector's statements are run, and the reads that differ here
presence.py      a worker's presence: an advisory lock on a session of its own
wakeup.py        wake-ups: LISTEN and NOTIFY, on a connection that checks that it receives
shared_wakeup.py  one such connection for all workers of an event loop
pool.py          the connections that a store shares among its calls
connection.py    opens one connection, by its URL and settings, through a pooler or not
errors.py        what the server's and the driver's errors mean to the rest of the program
session.py       the settings that each session of ours has, regardless of its role's
checks.py        facts for the doctor, and checks of them: durability, connections, vacuum
route.py         how safe the way to the server is, for the doctor
privileges.py    what a role may do: granted by the tables' owner, checked at the start
strangers.py     refuses other roles' objects in our schema, which could run as this role
schema.py        makes and migrates the schema, and refuses one that does not fit
statements.py    turns values into arguments of statements, and rows into values
sql/             statements by topic, functions and migrations; comments argue why they are right
"""
