"""RQ on Redis: the worker that does not fork for each job.
BENCH_DEFAULTS=1: a worker for which nothing is set; its jobs of `nap` may be retried.
"""

from __future__ import annotations

import time

import redis
from common import DEFAULTS, URL, client_sync, execute, mark, operation
from rq import Queue, Retry


def noop(value):
    mark()


def timed(sent_at):
    mark(sent_at)


def nap(seconds):
    mark()
    time.sleep(seconds)


if __name__ == "__main__":
    if operation() == "worker":
        simple = () if DEFAULTS else ("--worker-class", "rq.SimpleWorker")
        execute("rq", "worker", "q", "--url", URL, "--quiet", *simple)
    import with_rq  # jobs are known by the path of their module

    queue = Queue("q", connection=redis.Redis.from_url(URL))

    def many(jobs: int) -> None:
        queue.enqueue_many([Queue.prepare_data(with_rq.noop, args=(1,))] * jobs)

    if operation() != "setup":
        client_sync(
            lambda: queue.enqueue(with_rq.noop, 1),
            many,
            lambda now: queue.enqueue(with_rq.timed, now),
            lambda seconds: queue.enqueue(with_rq.nap, seconds, retry=Retry(max=3)),
        )
