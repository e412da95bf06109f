"""Huey on SQLite: one worker thread that looks every 10 to 50 ms; fsync on, as Outlast has it.
BENCH_DEFAULTS=1: a consumer for which nothing is set.
"""

from __future__ import annotations

import time

from common import DEFAULTS, URL, client_sync, execute, mark, operation
from huey import SqliteHuey

huey = SqliteHuey("bench", filename=URL, results=False, fsync=True)


@huey.task()
def noop(value):
    mark()


@huey.task()
def timed(sent_at):
    mark(sent_at)


@huey.task(retries=3)
def nap(seconds):
    mark()
    time.sleep(seconds)


if __name__ == "__main__":
    if operation() == "worker":
        options = () if DEFAULTS else ("-q", "-w", "1", "-d", "0.01", "-m", "0.05")
        execute("huey_consumer", "with_huey.huey", *options)
    from with_huey import nap, noop, timed  # the names under which the consumer knows them

    if operation() != "setup":
        client_sync(lambda: noop(1), None, timed, nap)
