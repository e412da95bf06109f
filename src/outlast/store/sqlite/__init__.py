"""Jobs in a SQLite file: no server, any number of processes on one machine.

backend.py      its entry among the kinds of stores
store.py        SqliteStore: the verbs
exchange.py     the hot path: hand in what ended and claim what is next, in one transaction
suspects.py     which cohort of suspects runs next; part of the exchange
refusals.py     what a write without a current attempt is answered, and the record of it
callers.py      callers' own connections: sqlite3, aiosqlite
jobs.py         what happens to jobs outside the exchange: enqueue, cancel, checkpoint, logs
pruning.py      deletes jobs: those kept for no time as they end, others later
minutes.py      what workers have counted: noted and added up
wanted.py       how many jobs of a queue want a worker
schedules.py    schedules: put, paused, due and fired
pauses.py       what is paused: noted, ended and acknowledged
actions.py      the verbs by which people act
records.py      the record of what they did
workers.py      workers' rows and beats; gives the jobs of lost workers back
inspector.py    how the inspector's statements are run, and the reads that differ here
checks.py       facts for the doctor, and checks of them: file, disk, library
environment.py  reads them: the file, the disk under it and the library, for the doctor
wakeup.py       wake-ups: a look says whether another process has committed
inotify.py      the kernel's reports of writes to a file (Linux)
connection.py   one connection on a thread of its own, so that no disk blocks a loop
thread.py       the thread that a connection lives on
schema.py       makes, checks and migrates the schema
errors.py       what sqlite3 raises, as Outlast's errors, each with what to do about it
url.py          what a URL names: a file, and how strict to be about its file system
library.py      which SQLite libraries work, and which damage a database in WAL mode
sql/            statements by topic and migrations; comments argue why they are right
lanes.py        which jobs are next, queue by queue
"""
