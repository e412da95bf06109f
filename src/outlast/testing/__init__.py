"""Test your own application: its real tasks, a real store and a real worker, one test at a time.

    with outlast.testing.isolate(app) as jobs:    # pytest: the fixture outlast_app
        client.post("/signup", json={"email": "a@b.example"})
        jobs.enqueued(send_welcome, email="a@b.example")
        jobs.drain_sync()

There is no mock of the queue: an enqueued job is a row of a store, and ``drain`` is the worker of
``app.worker()``, step by step. A crash leaves its row, lock file and jobs as a killed process does;
the next worker detects its death, as in production.

app_under_test.py  ``isolate`` and the AppUnderTest that it yields
arguments.py       finds a job by its task and some of its arguments, and describes differences
crashes/           a task at each of its points, under each kind of crash
drain.py           one worker, stepped until nothing is due
faults.py          crashes and lost leases, and the attempts that they hit
inline.py          a call of a task without any store
"""

from outlast.testing.app_under_test import AppUnderTest, isolate
from outlast.testing.inline import inline, inline_sync

__all__ = ["AppUnderTest", "inline", "inline_sync", "isolate"]
