"""Opens the store, the single source of truth about jobs and leases: ``open_store``, by URL.

backend.py      the kinds of stores: one entry for each, found by the URL
protocol.py     the verbs of a store, as protocols, and the limits that all stores share
inspector.py    the reads for people and screens, once for all stores
values.py       arguments and results of the verbs
new_rows.py     the columns that an enqueue stores, for statements, comparisons and privileges
rows.py         jobs, attempts, workers and bad ends as they are read
schedules.py    schedules: values
limits.py       limits, permits and places in streams: values
limit_counts.py  what runs and waits under limits, in bounded numbers
actions.py      acts of people and their records: values
acts.py         acts of people, once for all stores: what each means
batches.py      splits a large enqueue, and finds the one bad value in a batch
listing.py      ids of jobs for a list, one bounded look after another
logs.py         lines that attempts have printed: values
stacks.py       requests for stacks of running jobs, and the answers: values
statistics.py   numbers that a store counts for people, each of them bounded
minutes.py      counters of workers: values
finding.py      the doctor's findings as rows of tables, and how a store checks its own facts
environment.py  facts of this machine and its files that stores and the doctor read alike
columns.py      JSON and numbers in columns, read the same way by all stores
dependencies.py  what new jobs wait for, and the results that they get
keys.py         the answer of an enqueue if an unfinished job has the key
wakeup.py       a worker's wake-up: hints, and a report of its own health
lockfile.py     a worker's lock file: proof of its death on the same host, and its beat
migrations.py   the rules of schema migrations; the stores run the SQL
statements.py   loads the SQL files of the stores
queue_turns.py  which queue's turn it is
sql/            the reads that PostgreSQL and SQLite answer alike
postgres/       the store on PostgreSQL
sqlite/         the store on SQLite
foreign.py      connections of the caller's own, for the caller's own transactions
"""

from __future__ import annotations

from outlast.store.backend import open_store, register
from outlast.store.postgres.backend import POSTGRES
from outlast.store.sqlite.backend import SQLITE

__all__ = ["open_store"]

for _each in (SQLITE, POSTGRES):  # a third store is one more here
    register(_each)
