"""Chancy: the async executor, 100 jobs at a time, eager polling."""

from __future__ import annotations

import asyncio

from chancy import Chancy, Queue, Worker, job
from common import URL, client, mark, operation


@job(queue="q")
async def noop(*, value: int) -> None:
    mark()


@job(queue="q")
async def timed(*, sent_at: float) -> None:
    mark(sent_at)


QUEUE = Queue(
    "q", concurrency=100, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
)


async def main() -> None:
    async with Chancy(URL) as chancy:
        if operation() == "setup":
            await chancy.migrate()
            await chancy.declare(QUEUE)
            return
        if operation() == "worker":
            async with Worker(chancy) as worker:
                await worker.wait_for_shutdown()
            return

        async def many(jobs: int) -> None:
            async for _ in chancy.push_many([noop.job.with_kwargs(value=1)] * jobs):
                pass

        async def send_timed(now: float, jobs: int) -> None:
            async for _ in chancy.push_many([timed.job.with_kwargs(sent_at=now)] * jobs):
                pass

        await client(lambda: chancy.push(noop.job.with_kwargs(value=1)), many, send_timed)


if __name__ == "__main__":
    import with_chancy  # jobs are known by the path of their module

    asyncio.run(with_chancy.main())
