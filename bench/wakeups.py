"""What wakes workers, compared: polling, NOTIFY, NATS and RabbitMQ with 1 to 200 idle workers.

All workers are in one process, each with its own connections, as in separate processes; by NOTIFY
they share one session. The time to pick a job up goes from the call of ``enqueue`` to the task's
first line; transactions are those that the database has counted, at rest and while jobs come five a
second. Those of a job are what it adds to those at rest: its enqueue and its end among them.

    python -m bench wakeups [--only polling,notify,nats,amqp] [--quick]
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import outlast
from bench.kit import keep, markdown, tell
from harness import nats_server, rabbit_server
from harness.servers import PostgresServer
from outlast.events import subscribe

KINDS = ("polling", "notify", "nats", "amqp")
CREWS = (1, 10, 50, 200)
PACE_SECONDS = 0.2
JOBS, REST_SECONDS, DRAIN = 50, 15.0, 2_000


def main(options: Any) -> int:
    """Measure, print and keep; return 0."""
    kinds = [kind for kind in KINDS if not options.only or kind in options.only]
    crews = (1, 10) if options.quick else CREWS
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        places = dict(stack.enter_context(servers(kinds)))
        settings = {"max_connections": "1500"}
        postgres = stack.enter_context(PostgresServer(settings=settings))
        steps = len(places) * len(crews)
        with tell("wakeups", steps, 12.0 if options.quick else 60.0) as step:
            for kind, wakeup in places.items():
                for count in crews:
                    url = postgres.create_database(f"{kind}_{count}")
                    with asyncio.Runner() as runner:
                        row = runner.run(measure(url, kind, wakeup, count, quick=options.quick))
                    rows.append(row)
                    step(str(row))
    print(markdown(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))
    keep("wakeups", rows, whole=not (options.quick or options.only))
    return 0


@contextlib.contextmanager
def servers(kinds: Sequence[str]) -> Iterator[list[tuple[str, str | None]]]:
    """Give each kind with the messenger's URL, where it can be had."""
    with contextlib.ExitStack() as stack:
        found: list[tuple[str, str | None]] = [(k, None) for k in kinds if k in KINDS[:2]]
        if "nats" in kinds:
            found.append(("nats", stack.enter_context(nats_server.NatsServer()).url))
        if "amqp" in kinds and rabbit_server.missing() is None:
            found.append(("amqp", stack.enter_context(rabbit_server.RabbitServer()).url))
        yield found


async def measure(
    url: str, kind: str, wakeup: str | None, count: int, *, quick: bool
) -> dict[str, Any]:
    """Return the figures for a number of workers."""
    app = outlast.App(url, wakeup=wakeup, notify=kind != "polling")
    started: dict[int, float] = {}

    @app.task
    async def work(number: int) -> None:
        started[number] = time.perf_counter()

    jobs, rest = (10, 3.0) if quick else (JOBS, REST_SECONDS)
    async with many_workers(app, count):
        await asyncio.sleep(3.0 if quick else 12.0)  # all have looked, and found nothing
        at_rest = await committed(url, rest)
        took: list[float] = []

        async def load() -> None:
            for number in range(jobs):
                asked = time.perf_counter()
                await work.enqueue(number)
                while number not in started:
                    await asyncio.sleep(0.0005)
                took.append(1_000 * (started[number] - asked))
                await asyncio.sleep(PACE_SECONDS)

        loading = asyncio.create_task(load())
        began_at = time.perf_counter()
        under_load = await committed(url, None, loading)
        seconds = time.perf_counter() - began_at
        drained = await drain(work, started, 200 if quick else DRAIN)
    await app.close()
    return {
        "wake-up": kind,
        "workers": count,
        "pickup median ms": round(statistics.median(took), 1),
        "pickup worst ms": round(max(took), 1),
        "transactions/s at rest": round(at_rest, 1),
        "transactions/s at 5 jobs/s": round(under_load, 1),
        "transactions of a job": round((under_load - at_rest) * seconds / jobs, 1),
        "drained jobs/s": round(drained),
    }


async def drain(work: Any, started: dict[int, float], count: int) -> float:
    """Return at how many a second jobs were started that came all at once."""
    numbers = range(1_000_000, 1_000_000 + count)
    began_at = time.perf_counter()
    await work.stores.enqueue([work.call(number).job for number in numbers])
    while not all(number in started for number in (numbers[0], numbers[-1])) or not all(
        number in started for number in numbers
    ):
        await asyncio.sleep(0.01)
    return count / (max(started[number] for number in numbers) - began_at)


@contextlib.asynccontextmanager
async def many_workers(app: outlast.App, count: int) -> AsyncIterator[None]:
    """Run a number of workers in this process; all receive wake-ups when the block begins."""
    heard: list[str] = []
    unsubscribe = subscribe(lambda name, _: heard.append(name) if name == "wakeup_ready" else None)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(
                app.worker(presence=False, concurrency=10, drain_timeout=0.0)
            )
        while len(heard) < (count if app.wakeup else 1):  # who listens by NOTIFY shares a session
            await asyncio.sleep(0.05)
        unsubscribe()
        yield


async def committed(url: str, seconds: float | None, during: Any = None) -> float:
    """Return how many transactions a second the database has counted meanwhile."""
    import asyncpg

    connection = await asyncpg.connect(url)
    counted = (
        "SELECT pg_stat_clear_snapshot(), xact_commit FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    try:
        before, at = (await connection.fetchrow(counted))[1], time.perf_counter()
        await (asyncio.sleep(seconds) if seconds is not None else during)
        after, now = (await connection.fetchrow(counted))[1], time.perf_counter()
    finally:
        await connection.close()
    return float((after - before) / (now - at))
