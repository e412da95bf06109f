"""A listener that notes what it hears."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from outlast.store.backend import StoreOptions
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.protocol import Store
from outlast.store.values import NewJob


class Heard:
    """Collects the notices of a wake-up, without the position by which one about jobs is known."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, word: str) -> None:
        self.words.append(re.sub(r"^jobs:\d+:", "jobs:", word))
        self._news.set()

    async def hears(self, word: str) -> None:
        async with asyncio.timeout(25):
            while word not in self.words:
                self._news.clear()
                await self._news.wait()


async def hears(url: str, store: Store, *, pooler: bool) -> None:
    """Wake a new listener, after it has checked that it listens."""
    heard = Heard()
    wakeup = PostgresWakeup(url)
    wakeup._options = StoreOptions(pooler=pooler)
    await wakeup.start(heard)
    await heard.hears("")
    session = await wakeup.borrow(30.0)
    assert session is not None
    rows = await session.connection.fetch("SELECT pg_listening_channels()")
    channels = sorted((row[0] for row in rows), key=lambda name: "echo" not in name)
    assert await wakeup._still_listens(session, *channels)
    await store.enqueue([NewJob(task="t", queue="heard")])
    await heard.hears("jobs:1:heard")
    await wakeup.close()
    await session.connection.close()


@pytest.fixture
async def heard(pg_url: str, store: Store) -> AsyncIterator[Heard]:
    heard = Heard()
    wakeup = PostgresWakeup(pg_url)
    await wakeup.start(heard)
    await heard.hears("")  # listening
    assert wakeup.health.good
    heard.words.clear()
    yield heard
    await wakeup.close()
    await wakeup.close()
