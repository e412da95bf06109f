"""RQ on Redis: the worker that does not fork for each job."""

from __future__ import annotations

import redis
from common import URL, client_sync, execute, mark, operation
from rq import Queue


def noop(value):
    mark()


def timed(sent_at):
    mark(sent_at)


if __name__ == "__main__":
    if operation() == "worker":
        execute("rq", "worker", "q", "--url", URL, "--quiet", "--worker-class", "rq.SimpleWorker")
    import with_rq  # jobs are known by the path of their module

    queue = Queue("q", connection=redis.Redis.from_url(URL))

    def many(jobs: int) -> None:
        queue.enqueue_many([Queue.prepare_data(with_rq.noop, args=(1,))] * jobs)

    if operation() != "setup":
        client_sync(
            lambda: queue.enqueue(with_rq.noop, 1),
            many,
            lambda now: queue.enqueue(with_rq.timed, now),
        )
