"""Dramatiq on Redis: one process, 8 threads, 200 messages ahead."""

from __future__ import annotations

import os

import dramatiq
from common import URL, client_sync, execute, mark, operation
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor(actor_name="noop")
def noop(value):
    mark()


@dramatiq.actor(actor_name="timed")
def timed(sent_at):
    mark(sent_at)


if __name__ == "__main__":
    if operation() == "worker":
        os.environ["DRAMATIQ_QUEUE_PREFETCH"] = "200"
        execute("dramatiq", "with_dramatiq", "--processes", "1", "--threads", "8")
    if operation() != "setup":
        client_sync(lambda: noop.send(1), None, timed.send)
