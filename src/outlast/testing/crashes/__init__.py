"""Prove a task under crashes: ``crash_test`` runs it once, and then again for each of its points.

    report = crash_test("shop.jobs:app", "shop.checks:orders", copy=["orders.csv"])
    report.check()    # AssertionError with a table of what a crash breaks

A *point* is where an attempt is about to do something that lasts: a save, a report, a step, a
commit, a file that it opens or closes, a request, a job that it enqueues. A crash after one point
is the crash before the next. The runs are in copies of a process of their own, held by the kernel:
names that are replaced there only observe the task.

process.py    starts the process, and reads its report
confine.py    holds the process, before the application is imported
runs.py       the runs of all cases, in that process
copies.py     copies of the process, which run a part, and can be killed
cases.py      points, the fates of an attempt at them, and the report
watch.py      attempts that reach points, and the fate that one of them meets
recorder.py   what the attempts of one run do, and the lines of the user's code that do it
folder.py     the folder of a run, and the observers of what is done in it
files.py      files whose end is a point
databases.py  connections to SQLite whose commits are points
servers.py    connections to PostgreSQL, likewise, by asyncpg and psycopg
requests.py   requests, which are points, and are counted
end_state.py  what a run has left behind, and how two runs differ
remedies.py   what removes an effect
"""

from outlast.testing.crashes.cases import CrashReport
from outlast.testing.crashes.process import crash_test

__all__ = ["CrashReport", "crash_test"]
