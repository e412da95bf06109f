"""Absurd: 50 tasks at a time, looks every 50 ms. Its tables come with absurdctl. A flow is a task
in a queue of its own, since a task may only wait for those of other queues; it does not count.
"""

from __future__ import annotations

import asyncio

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd
from common import FLOW, URL, client, mark, operation


async def main() -> None:
    app = AsyncAbsurd(URL, queue_name="q")
    if operation() == "setup":
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        await app.create_queue("q")
        await app.create_queue("flows")

    @app.register_task("noop")
    async def noop(params, ctx):
        mark()

    @app.register_task("timed")
    async def timed(params, ctx):
        mark(params["sent_at"])

    @app.register_task("step")
    async def steps(params, ctx):
        mark()
        for n in range(10):
            await ctx.step(str(n), value)

    async def value():
        return 1

    flows = AsyncAbsurd(URL, queue_name="flows")

    @flows.register_task("flow")
    async def flow(params, ctx):
        for place, size in enumerate([1] * 5 if params["kind"] == "chain" else [10, 1]):

            async def spawn(size=size):
                made = [await app.spawn("noop", {"value": 1}) for _ in range(size)]
                return [each["task_id"] for each in made]

            for child in await ctx.step(f"spawn {place}", spawn):
                await ctx.await_task_result(child, queue_name="q")

    def start():
        if FLOW in {"chain", "group"}:
            return flows.spawn("flow", {"kind": FLOW}, queue="flows")
        return app.spawn(FLOW or "noop", {"value": 1})

    if operation() == "worker":
        await asyncio.gather(
            app.start_worker(concurrency=50, poll_interval=0.05),
            *([flows.start_worker(concurrency=50, poll_interval=0.05)] if FLOW else []),
        )
    elif operation() != "setup":
        await client(
            start,
            None,
            lambda now, _: app.spawn("timed", {"sent_at": now}),
        )
    await app.close()
    await flows.close()


if __name__ == "__main__":
    asyncio.run(main())
