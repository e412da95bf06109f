"""PgQueuer: asyncpg, uvloop, a pool of connections and batches of 100. BENCH_LIMIT_RUNNING
sets its own limit on one entrypoint, over all workers."""

from __future__ import annotations

import os

import asyncpg
import uvloop
from common import URL, client, mark, operation
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = 10_000
LIMITS = {}
if CAP := os.environ.get("BENCH_LIMIT_RUNNING"):
    LIMITS["concurrency_limit"] = int(CAP)


async def work() -> None:
    queuer = PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(URL, min_size=5, max_size=20)))

    @queuer.entrypoint("noop", **LIMITS)
    async def noop(job: Job) -> None:
        mark()

    @queuer.entrypoint("timed")
    async def timed(job: Job) -> None:
        mark(float(job.payload))

    await queuer.run(batch_size=100)


async def main() -> None:
    if operation() == "worker":
        await work()
        return
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    if operation() == "setup":
        await queries.install()
        return

    async def many(jobs: int) -> None:
        for at in range(0, jobs, BATCH):
            size = min(BATCH, jobs - at)
            await queries.enqueue(["noop"] * size, [b"1"] * size, [0] * size)

    async def timed(now: float, jobs: int) -> None:
        await queries.enqueue(["timed"] * jobs, [repr(now).encode()] * jobs, [0] * jobs)

    await client(lambda: queries.enqueue("noop", b"1"), many, timed)


if __name__ == "__main__":
    uvloop.run(main())
