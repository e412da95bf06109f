"""Absurd: 50 tasks at a time, looks every 50 ms. Its tables come with absurdctl."""

from __future__ import annotations

import asyncio

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd
from common import URL, client, mark, operation


async def main() -> None:
    app = AsyncAbsurd(URL, queue_name="q")
    if operation() == "setup":
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        await app.create_queue("q")

    @app.register_task("noop")
    async def noop(params, ctx):
        mark()

    @app.register_task("timed")
    async def timed(params, ctx):
        mark(params["sent_at"])

    if operation() == "worker":
        await app.start_worker(concurrency=50, poll_interval=0.05)
    elif operation() != "setup":
        await client(
            lambda: app.spawn("noop", {"value": 1}),
            None,
            lambda now, _: app.spawn("timed", {"sent_at": now}),
        )
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
