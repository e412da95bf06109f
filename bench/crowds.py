"""From enqueuing to the start of a handler, beside a crowd of jobs in a queue of its own each.

One job at a time, on a worker that has nothing to do and serves all queues (as ``idle`` of
``latency``). Scheduled jobs fall due in a day; those of an unknown task are due, but not taken.

    python -m bench crowds [--only NAME,…] [--rounds N] [--quick]
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.contenders import OUTLAST, SQLITE, chosen
from bench.environment import Ground, ground
from bench.harness import Stand, stand
from bench.kit import tell
from bench.latency import IDLE_JOBS, idle
from bench.series import Series
from outlast.store import open_store
from outlast.store.protocol import ENQUEUE_MAX
from outlast.store.values import NewJob

NAMES = ("postgres in process", "sqlite in process")
DAY = 86_400.0
CROWDS = {
    "no crowd": (0, NewJob(task="unknown")),
    "50,000 scheduled": (50_000, NewJob(task="unknown", delay=DAY)),
    "500,000 scheduled": (500_000, NewJob(task="unknown", delay=DAY)),
    "50,000 of an unknown task": (50_000, NewJob(task="unknown")),
}


async def gather(url: str, number: int, job: NewJob) -> None:
    """Enqueue that many jobs like this one, each in a queue of its own."""
    store = open_store(url)
    for start in range(0, number, ENQUEUE_MAX):
        queues = range(start, min(number, start + ENQUEUE_MAX))
        await store.enqueue(
            [NewJob(task=job.task, queue=f"crowd-{n}", delay=job.delay) for n in queues]
        )
    await store.close()


def pickup(one: Stand, place: Ground, number: int, job: NewJob, jobs: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of the pickup beside a crowd, in milliseconds."""
    url = f"sqlite:///{one.url}" if one.entry.store == SQLITE else one.url
    asyncio.run(gather(url, number, job))
    sample = idle(one, place, jobs)
    return sample.p50, sample.p99


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("crowds", "pickup beside jobs in as many queues")
    entries = [e for e in chosen(options.only or NAMES, OUTLAST) if "plain" not in e.name]
    scale, jobs = (100, 20) if options.quick else (1, IDLE_JOBS)
    steps = len(CROWDS) * len(entries) * options.rounds
    with ground() as place, tell("crowds", steps, 8) as step:
        for _ in range(options.rounds):
            for entry in entries:
                for what, (number, job) in CROWDS.items():

                    def measure(
                        entry: Any = entry, what: str = what, number: int = number, job: Any = job
                    ) -> None:
                        with stand(entry, place) as one:
                            found = pickup(one, place, number // scale, job, jobs)
                        for name, value in zip(("median", "99 %"), found, strict=True):
                            line = f"{what}, {name}"
                            series.figure(entry.name, line, "ms", 1).values.append(value)
                        step(f"{entry.name}, {what}: {found[0]:.1f} ms, 99 % {found[1]:.1f} ms")

                    series.attempt(entry.name, what, "ms", measure)
    return series.finish(whole=not (options.only or options.quick))
