"""Prove a task under crashes: ``crash_test`` runs it once, and then again for each of its points.

    report = crash_test(app, import_orders.call("orders.csv"), copy=["orders.csv"])
    report.check()    # AssertionError with a table of what a crash breaks

A *point* is where an attempt is about to do something that lasts: a save, a report, a step, a
commit, a file that it opens or closes, a request, a job that it enqueues. The code between two
points leaves nothing behind, so a crash after one point is the crash before the next. The runs are
in this process and in copies of it, each in a sandbox: a folder of its own, with copies of the
SQLite files that the task opens.

cases.py      points, the fates of an attempt at them, and the report
watch.py      attempts that reach points, and the fate that one of them meets
recorder.py   what the attempts of one run do, and the lines of the user's code that do it
sandbox.py    the folder, and what is refused
files.py      files whose end is a point
databases.py  connections to SQLite whose commits are points
end_state.py  what a run has left behind, and how two runs differ
remedies.py   the means that mend an effect
copies.py     copies of this process, which run a part, and can be killed
runs.py       the runs of all cases
"""

from outlast.testing.crashes.cases import CrashReport
from outlast.testing.crashes.runs import crash_test

__all__ = ["CrashReport", "crash_test"]
