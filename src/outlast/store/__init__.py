"""Opens the store, the single source of truth about jobs and leases: ``open_store``, by URL.

backend.py      the kinds of stores: one entry for each, found by the URL
protocol.py     the verbs of a store, as protocols, and the limits that all stores share
inspector.py    the reads for people and screens, once for all stores
values.py       arguments and results of the verbs
peeks.py        the values that each worker polls all the time
rows.py         jobs, attempts, workers and refusals as they are read
schedules.py    schedules: values
limits.py       limits, permits and places in streams: values
limit_counts.py  what runs and waits under limits, in bounded numbers
actions.py      acts of people and their records: values
batches.py      splits a large enqueue into statements of a bounded size
listing.py      ids of jobs for a list, one bounded look after another
logs.py         lines that attempts have printed: values
stacks.py       requests for stacks of running jobs, and the answers: values
searching.py    a search by texts in jobs: values
statistics.py   numbers that a store counts for people, each of them bounded
shares.py       shares a budget of rows among many counts
evidence.py     bad ends: dead jobs in groups, ended attempts, suspects: values
minutes.py      counters of workers: values
finding.py      findings of the doctor, and the protocols by which a store checks its own facts
environment.py  facts of this machine that stores and the doctor read alike
paths.py        looks at a path, as far as this user may see
history.py      jobs with their closed attempts, page by page, for `outlast verify`
columns.py      JSON and numbers in columns, read the same way by all stores
dependencies.py  what new jobs wait for, and the results that they get
events.py       values of events
keys.py         the answer of an enqueue if an unfinished job has the key
bisect.py       finds the one bad outcome in a batch, and ends its job
unpublished.py  waiting jobs that were not announced to a messenger, for the announcer
wakeup.py       a worker's wake-up: hints, and a report of its own health
presence.py     the lock that a live worker's session holds in the database: the protocol
lockfile.py     a worker's lock file: proof of its death on the same host, and its beat
migrations.py   the rules of schema migrations; the stores run the SQL
statements.py   loads the SQL files of the stores
turns.py        which queue's turn it is
postgres/       the store on PostgreSQL
sqlite/         the store on SQLite
foreign/        connections of the caller's own, for the caller's own transactions
"""

from __future__ import annotations

from outlast.store.backend import open_store, register
from outlast.store.postgres.backend import POSTGRES
from outlast.store.sqlite.backend import SQLITE

__all__ = ["open_store"]

for _each in (SQLITE, POSTGRES):  # a third store is one more here
    register(_each)
