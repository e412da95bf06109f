"""Stores jobs on PostgreSQL: one shared truth for workers on many machines.

backend.py       its entry among the kinds of stores
readable.py      opens a store to read it, without its verbs
store.py         PostgresStore: the verbs
workers.py       its verbs about workers: rows, leases, and the jobs of lost workers
schedules.py     its verbs about schedules
limits.py        its verbs about limits
acts.py          the transaction of an act of a person
exchange.py      the hot path: hand in ends and claim what is next; floors that skip dead rows
enqueue.py       enqueues, on the store's own connection or in the caller's transaction
callers.py       callers' own connections: asyncpg, psycopg
foreign.py       the verbs on a caller's own connection
inspector.py     runs the inspector's statements, and the reads that differ here
presence.py      a worker's presence: a session advisory lock
wakeup.py        wake-ups: LISTEN and NOTIFY, on one connection for all workers of an event loop
pool.py          the connections that a store shares among its calls
url.py           reads a URL: what the driver takes of it, and what it asks of the session
connection.py    opens one connection and sets up its session, through a pooler or not
spare.py         sessions that end where the server has too few places
hosts.py         finds the host that answers, of several in a URL
hangs.py         leaves sessions whose statements hang, once another server answers
errors.py        translates the server's and the driver's errors into Outlast's
checks.py        facts for the doctor, and checks of them: durability, connections, vacuum
route.py         how safe the network path to the server is, for the doctor
privileges.py    the privileges of a role: granted by the tables' owner, checked at the start
schema.py        makes and migrates the schema; refuses one that does not fit or is not ours alone
statements.py    turns values into arguments of statements, and rows into values
sql/             statements by topic, functions and migrations; comments argue why they are right
"""
