"""Celery on Redis: one thread, 64 messages ahead, no gossip; taken jobs count as done."""

from __future__ import annotations

import os

from celery import Celery
from common import URL, client_sync, execute, mark, operation

app = Celery("with_celery", broker=URL)
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 64


@app.task(name="noop")
def noop(value):
    mark()


@app.task(name="timed")
def timed(sent_at):
    mark(sent_at)


if __name__ == "__main__":
    if operation() == "worker":
        name = f"worker{os.getpid()}@bench"
        quiet = ("-l", "ERROR", "--without-gossip", "--without-mingle")
        execute("celery", "-A", "with_celery", "worker", "-n", name, "-P", "threads", "-c1", *quiet)
    if operation() != "setup":
        client_sync(lambda: noop.delay(1), None, timed.delay)
