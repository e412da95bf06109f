"""Procrastinate: psycopg 3, 20 jobs at a time."""

from __future__ import annotations

import asyncio

import procrastinate
from common import URL, client, mark, operation

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))


@app.task(name="noop", queue="q")
async def noop(value):
    mark()


@app.task(name="timed", queue="q")
async def timed(sent_at):
    mark(sent_at)


async def many(jobs: int) -> None:
    await noop.batch_defer_async(*[{"value": 1}] * jobs)


async def send_timed(now: float, jobs: int) -> None:
    await timed.batch_defer_async(*[{"sent_at": now}] * jobs)


async def main() -> None:
    async with app.open_async():
        if operation() == "setup":
            await app.schema_manager.apply_schema_async()
        elif operation() == "worker":
            await app.run_worker_async(queues=["q"], concurrency=20)
        else:
            await client(lambda: noop.defer_async(value=1), many, send_timed)


if __name__ == "__main__":
    asyncio.run(main())
