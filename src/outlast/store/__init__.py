"""The store: the single source of truth about jobs and leases. ``open_store`` picks it by URL.

backend.py      the kinds of stores: one entry for each, found by the URL
protocol.py     what a store must do, as verbs, and the limits that all stores share
inspector.py    the reads for people and screens, once for all stores
values.py       what goes into the verbs, and what comes out of them
peeks.py      what each worker reads all the time
rows.py         jobs, attempts, workers and refusals as they are read
schedules.py    schedules: values
actions.py      what people do and the record of it: values
batches.py      splits what is stored at once into statements of a bounded size
listing.py      ids of jobs for a list, look after look
logs.py         what attempts have printed, where that is kept
stacks.py       requests where running jobs are, and the answers: values
searching.py    a search by what is written in jobs
statistics.py   numbers that a store counts for people, each of them bounded
evidence.py     what ended badly: dead jobs in groups, ended attempts, suspects: values
minutes.py      what workers have counted: values
finding.py      what a check of the doctor finds, and how a store checks its own facts
environment.py  facts of this machine that stores and the doctor read alike
paths.py        what is at a path, as far as this user may see
history.py      jobs with their closed attempts, page by page, for `outlast verify`
columns.py      JSON and numbers in columns, read the same way by all stores
keys.py         what an enqueue answers where an unfinished job has the key
bisect.py       finds the one bad outcome in a batch, and ends its job
unpublished.py  waiting jobs that no messenger was told of, for the sweeper
wakeup.py       what a wake-up is to a worker: a hint, and a report of its own health
presence.py     the lock that a live worker's session holds in the database: the protocol
lockfile.py     a worker's lock file: proof of its death on the same host, and its beat
migrations.py   the rules of schema migrations; the stores run the SQL
statements.py   loads the SQL files of the stores
postgres/       the store on PostgreSQL
sqlite/         the store on SQLite
foreign/        connections of the caller's own, for the caller's own transactions
turns.py        whose turn it is among the queues
"""

from __future__ import annotations

from outlast.store.backend import open_store, register
from outlast.store.postgres.backend import POSTGRES
from outlast.store.sqlite.backend import SQLITE

__all__ = ["open_store"]

for _each in (SQLITE, POSTGRES):  # a third store is one more here
    register(_each)
