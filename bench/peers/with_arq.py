"""arq on Redis: 100 jobs at a time, looks every 50 ms, keeps no results.
BENCH_DEFAULTS=1: a worker for which nothing is set.
"""

from __future__ import annotations

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from common import DEFAULTS, URL, client, execute, mark, numbers, operation

REDIS = RedisSettings.from_dsn(URL)


async def noop(ctx, value):
    mark()


async def timed(ctx, sent_at):
    mark(sent_at)


async def nap(ctx, seconds):
    mark()
    await asyncio.sleep(seconds)


class Settings:
    functions = [noop, timed, nap]
    redis_settings = REDIS
    if not DEFAULTS:
        max_jobs = 100
        poll_delay = 0.05
        keep_result = 0


async def main() -> None:
    pool = await create_pool(REDIS)
    if operation() == "nap":
        await pool.enqueue_job("nap", numbers()[0])
        return
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
