"""A worker in the process of the tests."""

from __future__ import annotations

import asyncio
from typing import Any

from outlast.contrib.django.runner import app
from outlast.model.job import ENDED


def work(*results: Any) -> None:
    """Run a worker until it has declared the project's schedule, and all of these jobs have ended;
    refresh the results."""

    async def ended(result: Any) -> bool:
        row = (await app.get(int(result.id))).row
        return row is not None and row.state in ENDED

    async def until_ended() -> None:
        async with app.worker(), asyncio.timeout(90):
            while not await app.schedules.list():
                await asyncio.sleep(0.02)
            for result in results:
                while not await ended(result):
                    await asyncio.sleep(0.02)
        await app.close()

    asyncio.run(until_ended())
    for result in results:
        result.refresh()
