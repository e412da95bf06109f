"""Oban, the Python one: 50 jobs at a time, uvloop."""

from __future__ import annotations

import asyncio

import uvloop
from common import URL, client, mark, operation
from oban import Oban, worker
from oban.schema import install

BATCH = 1000


@worker(queue="q")
class Noop:
    async def process(self, job) -> None:
        mark()


@worker(queue="q")
class Timed:
    async def process(self, job) -> None:
        mark(job.args["sent_at"])


async def main() -> None:
    pool = await Oban.create_pool(URL)
    if operation() == "setup":
        await install(pool)
    elif operation() == "worker":
        async with Oban(pool=pool, queues={"q": 50}):
            await asyncio.Event().wait()
    else:
        oban = Oban(pool=pool)
        async with oban:

            async def many(jobs: int) -> None:
                for at in range(0, jobs, BATCH):
                    size = min(BATCH, jobs - at)
                    await oban.enqueue_many([Noop.new({"value": 1}) for _ in range(size)])

            async def send_timed(now: float, jobs: int) -> None:
                await oban.enqueue_many([Timed.new({"sent_at": now}) for _ in range(jobs)])

            await client(lambda: Noop.enqueue({"value": 1}), many, send_timed)
    await pool.close()


if __name__ == "__main__":
    uvloop.run(main())
