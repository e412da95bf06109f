"""firm-queue on SQLite: 20 threads that look every 10 ms."""

from __future__ import annotations

import firm.queue
from common import URL, client_sync, mark, operation

firm.queue.configure(database_url=f"sqlite:///{URL}")


@firm.queue.job(queue="q")
def noop(value):
    mark()


@firm.queue.job(queue="q")
def timed(sent_at):
    mark(sent_at)


def work() -> None:
    from firm.queue import supervisor as made

    settings = made.SupervisorConfig(
        workers=[made.WorkerConfig(threads=20, poll_interval=0.01)],
        dispatchers=[made.DispatcherConfig()],
    )
    made.ForkSupervisor(firm.queue.current_runtime(), settings).start()


if __name__ == "__main__":
    from with_firm import noop, timed  # jobs are known by the path of their module

    if operation() == "setup":
        firm.queue.schema.create_all(firm.queue.current_runtime().engine)
    elif operation() == "worker":
        work()
    else:
        client_sync(lambda: noop.enqueue(1), None, timed.enqueue)
