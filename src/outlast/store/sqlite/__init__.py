"""Stores jobs in a SQLite file: no server, any number of processes on one machine.

backend.py      its entry among the kinds of stores
readable.py     opens a file to read it, without the verbs
store.py        SqliteStore: the verbs
exchange.py     the hot path: hand in ends and claim what is next, in one transaction
streams.py      claims jobs from streams, whose turn it is; part of the exchange
permits.py      counts the permits of what an exchange starts
refusals.py     answers a write without a current attempt, and records it
callers.py      callers' own connections: sqlite3, aiosqlite
foreign.py      the verbs on a caller's own connection
jobs.py         writes about jobs outside the exchange: enqueue, checkpoint, logs
steps.py         steps: kept and found; children of attempts
events.py       events: sent and found; who waits for them
dependencies.py  what blocked jobs wait for
pruning.py      deletes jobs: those kept for no time as they end, others later
minutes.py      counters of workers: noted and added up
schedules.py    schedules: put, due and fired
limits.py       limits: declared, set, held; what is spent
acts.py         the transaction of an act of a person
workers.py      workers' rows and beats; gives the jobs of lost workers back
inspector.py    runs the inspector's statements, and the reads that differ here
checks.py       facts for the doctor, and checks of them: file, disk, library
environment.py  reads those facts: the file, the disk under it and the library
writer.py       the process that holds the write lock of the file
wakeup.py       wake-ups: a look shows whether another process has committed; inotify
connection.py   one connection on a separate thread, so that no disk blocks a loop; that thread
schema.py       makes, checks and migrates the schema
errors.py       turns errors of sqlite3 into Outlast's, each with advice
url.py          parses a URL: a file, and how strict to be about its file system
library.py      knows which SQLite libraries work, and which damage a database in WAL mode
statements.py   loads the statements, and adapts those that all stores share
lanes.py        finds the jobs that are next, queue by queue
sql/            statements by topic and migrations; comments argue why they are right
"""
