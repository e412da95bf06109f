"""arq on Redis: 100 jobs at a time, looks every 50 ms, keeps no results."""

from __future__ import annotations

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from common import URL, client, execute, mark, operation

REDIS = RedisSettings.from_dsn(URL)


async def noop(ctx, value):
    mark()


async def timed(ctx, sent_at):
    mark(sent_at)


class Settings:
    functions = [noop, timed]
    redis_settings = REDIS
    max_jobs = 100
    poll_delay = 0.05
    keep_result = 0


async def main() -> None:
    pool = await create_pool(REDIS)
    await client(
        lambda: pool.enqueue_job("noop", 1),
        None,
        lambda now, _: pool.enqueue_job("timed", now),
    )


if __name__ == "__main__":
    if operation() == "worker":
        execute("arq", "with_arq.Settings")
    if operation() != "setup":
        asyncio.run(main())
