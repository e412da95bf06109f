"""Awa: 64 jobs at a time. Its core is a program in Rust behind a Python interface."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from awa import AsyncClient
from common import URL, client, mark, operation

BATCH = 10_000
AT_A_TIME = 64


@dataclass
class Noop:
    value: int


@dataclass
class Timed:
    sent_at: float


async def main() -> None:
    awa = AsyncClient(URL)
    if operation() == "setup":
        await awa.migrate()
    if operation() in {"setup", "worker"}:

        @awa.task(Noop, queue="q")
        async def noop(job) -> None:
            mark()

        @awa.task(Timed, queue="q")
        async def timed(job) -> None:
            mark(job.args.sent_at)

        await awa.start([("q", AT_A_TIME)])
        if operation() == "worker":
            await asyncio.Event().wait()
        await asyncio.sleep(1.5)  # the first start makes the queue's own tables
        await awa.shutdown()
        return

    async def many(jobs: int) -> None:
        for at in range(0, jobs, BATCH):
            await awa.enqueue_many_copy([Noop(1)] * min(BATCH, jobs - at), queue="q")

    async def send_timed(now: float, jobs: int) -> None:
        if jobs == 1:
            await awa.insert(Timed(now), queue="q")
        else:
            await awa.enqueue_many_copy([Timed(now)] * jobs, queue="q")

    await client(lambda: awa.insert(Noop(1), queue="q"), many, send_timed)
    await awa.close()


if __name__ == "__main__":
    asyncio.run(main())
