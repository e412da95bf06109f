"""Celery on Redis: one thread, 64 messages ahead, no gossip; taken jobs count as done. Chords need
a result of each job, which Redis keeps, too.
"""

from __future__ import annotations

import os

from celery import Celery, chain, chord
from common import FLOW, URL, client_sync, execute, mark, operation

app = Celery("with_celery", broker=URL, backend=URL if FLOW else None)
app.conf.task_ignore_result = FLOW != "group"
app.conf.worker_prefetch_multiplier = 64


@app.task(name="noop")
def noop(value):
    mark()


@app.task(name="timed")
def timed(sent_at):
    mark(sent_at)


def start():
    one = noop.si(1)
    if FLOW == "chain":
        return chain(one, one, one, one, one).delay()
    return chord([one] * 10, one).delay() if FLOW else noop.delay(1)


if __name__ == "__main__":
    if operation() == "worker":
        name = f"worker{os.getpid()}@bench"
        quiet = ("-l", "ERROR", "--without-gossip", "--without-mingle")
        execute("celery", "-A", "with_celery", "worker", "-n", name, "-P", "threads", "-c1", *quiet)
    if operation() != "setup":
        client_sync(start, None, timed.delay)
