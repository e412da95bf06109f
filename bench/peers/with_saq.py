"""SAQ on Redis: 100 jobs at a time."""

from __future__ import annotations

import asyncio

from common import URL, client, mark, operation
from saq import Queue, Worker

queue = Queue.from_url(URL)


async def noop(ctx, *, value):
    mark()


async def timed(ctx, *, sent_at):
    mark(sent_at)


async def main() -> None:
    if operation() == "worker":
        await Worker(queue, functions=[noop, timed], concurrency=100).start()
        return
    await queue.connect()
    if operation() != "setup":
        await client(
            lambda: queue.enqueue("noop", value=1),
            None,
            lambda now, _: queue.enqueue("timed", sent_at=now),
        )
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
