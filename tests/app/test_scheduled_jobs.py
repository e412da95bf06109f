"""Schedules of the code and of the store are fired by a worker, on both stores."""

from __future__ import annotations

import asyncio

import outlast


async def test_a_worker_fires_what_its_code_declares_and_what_was_put(store_url: str) -> None:
    app = outlast.App(store_url)
    ran: dict[str, list[float]] = {"code": [], "store": []}
    enough = asyncio.Event()

    @app.task
    async def note(name: str) -> None:
        tick = outlast.current().tick
        assert tick is not None
        ran[name].append(tick.timestamp())
        if min(map(len, ran.values())) >= 2:
            enough.set()

    app.schedule("code", note.call("code"), every=1)
    async with app.worker():
        await app.schedules.put("store", note.call("store"), every=1)
        await asyncio.wait_for(enough.wait(), 60)
    for ticks in ran.values():
        assert ticks == sorted(set(ticks))
        assert all(tick == int(tick) for tick in ticks)
    listed = {each.name: each for each in await app.schedules.list()}
    assert set(listed) == {"code", "store"}
    await app.close()
