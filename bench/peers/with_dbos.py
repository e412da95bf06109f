"""DBOS: a queue of its own, which looks every 50 ms. BENCH_LIMIT_RUNNING: its own limit, of that
queue over all workers. A flow is a workflow whose children are queued; it looks for their results
every 50 ms, and is no job that counts.
"""

from __future__ import annotations

import os
import threading
import time

from common import FLOW, URL, client_sync, mark, operation
from dbos import DBOS, DBOSClient


@DBOS.workflow(name="noop")
async def noop(value):
    mark()


@DBOS.workflow(name="timed")
async def timed(sent_at):
    mark(sent_at)


async def queue_child():
    return await DBOS.enqueue_workflow_async("q", noop, 1)


@DBOS.workflow(name="chain")
async def chain():
    for _ in range(5):
        await (await queue_child()).get_result(polling_interval_sec=0.05)


@DBOS.workflow(name="group")
async def group():
    for child in [await queue_child() for _ in range(10)]:
        await child.get_result(polling_interval_sec=0.05)
    await (await queue_child()).get_result(polling_interval_sec=0.05)


@DBOS.step()
async def value():
    return 1


@DBOS.workflow(name="step")
async def steps():
    mark()
    for _ in range(10):
        await value()


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "application_version": "1",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    cap = os.environ.get("BENCH_LIMIT_RUNNING")
    DBOS.register_queue(
        "q",
        concurrency=int(cap) if cap else None,
        on_conflict="always_update",
        polling_interval_sec=0.05,
    )


def main() -> None:
    if operation() in {"setup", "worker"}:
        launch()
        if operation() == "worker":
            threading.Event().wait()
        time.sleep(1)
        DBOS.destroy()
        return
    dbos = DBOSClient(system_database_url=URL)

    def options(name):
        return {"queue_name": "q", "workflow_name": name, "app_version": "1"}

    client_sync(
        lambda: dbos.enqueue(options(FLOW or "noop"), *([] if FLOW else [1])),
        None,
        lambda now: dbos.enqueue(options("timed"), now),
    )
    dbos.destroy()


if __name__ == "__main__":
    main()
