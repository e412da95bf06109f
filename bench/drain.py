"""How fast a backlog of no-op jobs is enqueued and drained by real workers.

A first measurement, for scale: ratios against other queues and against the raw database arrive with
the issue on speed. ``python -m bench.drain [ROUNDS [JOBS]]``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict

from bench.kit import fresh, report, server
from outlast.model.job import State
from outlast.store.base import ENQUEUE_MAX, NewJob
from tests.crash.harness import Scene, scene

CONCURRENCIES = ("10", "100")


async def enqueue(stage: Scene, jobs: int) -> float:
    """Return jobs per second of enqueuing in statements of the largest size."""
    new = [NewJob(task="noop", args='{"value": 1}')] * jobs
    began_at = time.perf_counter()
    for at in range(0, jobs, ENQUEUE_MAX):
        await stage.store.enqueue(new[at : at + ENQUEUE_MAX])
    return jobs / (time.perf_counter() - began_at)


async def drain(stage: Scene, jobs: int, workers: int, concurrency: str) -> float:
    """Return jobs per second from the first look that saw an end to the last."""
    for _ in range(workers):
        await stage.worker("--runners", "1", "--concurrency", concurrency)
    seen: list[tuple[float, int]] = []
    while not seen or seen[-1][1] < jobs:
        counts = await stage.store.inspector.counts()
        done = sum(n for (_, state), n in counts.items() if state is State.COMPLETED)
        seen.append((time.perf_counter(), done))
        await asyncio.sleep(0.1)
    (first_at, first), (last_at, last) = seen[0], seen[-1]
    return (last - first) / max(last_at - first_at, 0.1)


async def main(rounds: int, jobs: int) -> None:
    """Measure both stores, interleaved, and report."""
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    with server() as postgres:
        for _ in range(rounds):
            for workers in (1, 2):
                for concurrency in CONCURRENCIES:
                    for kind in ("sqlite", "postgres"):
                        with fresh(kind, postgres) as (url, folder):
                            async with scene(url, folder) as stage:
                                rates["enqueue many", kind].append(await enqueue(stage, jobs))
                                what = f"drain, {workers} workers, concurrency {concurrency}"
                                rate = await drain(stage, jobs, workers, concurrency)
                                rates[what, kind].append(rate)
    report("drain", f"{jobs:,} no-op jobs", "jobs/s", rates)


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*(arguments + [3, 20_000][len(arguments) :])))
