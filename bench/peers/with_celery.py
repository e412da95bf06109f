"""Celery on Redis: one thread, 64 messages ahead, no gossip; taken jobs count as done. Chords need
a result of each job, which Redis keeps, too. BENCH_DEFAULTS=1: a worker for which nothing is set;
BENCH_LATE=1: jobs count as done at their end.
"""

from __future__ import annotations

import os
import time

from celery import Celery, chain, chord
from common import DEFAULTS, FLOW, URL, client_sync, execute, mark, operation

app = Celery("with_celery", broker=URL, backend=URL if FLOW else None)
app.conf.task_ignore_result = FLOW != "group"
if not DEFAULTS:
    app.conf.worker_prefetch_multiplier = 64
if os.environ.get("BENCH_LATE") == "1":
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True


@app.task(name="noop")
def noop(value):
    mark()


@app.task(name="timed")
def timed(sent_at):
    mark(sent_at)


@app.task(name="nap")
def nap(seconds):
    mark()
    time.sleep(seconds)


def start():
    one = noop.si(1)
    if FLOW == "chain":
        return chain(one, one, one, one, one).delay()
    return chord([one] * 10, one).delay() if FLOW else noop.delay(1)


if __name__ == "__main__":
    if operation() == "worker":
        name = f"worker{os.getpid()}@bench"
        worker = ("-A", "with_celery", "worker", "-n", name, "-l", "ERROR")
        one = () if DEFAULTS else ("-P", "threads", "-c1", "--without-gossip", "--without-mingle")
        execute("celery", *worker, *one)
    if operation() != "setup":
        client_sync(start, None, timed.delay, nap.delay)
