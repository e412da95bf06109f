"""A listener that notes what it hears."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.protocol import Store


class Heard:
    """Collects the notices of a wake-up, without the position by which one about jobs is known."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, word: str) -> None:
        self.words.append(re.sub(r"^jobs:\d+:", "jobs:", word))
        self._news.set()

    async def hears(self, word: str) -> None:
        async with asyncio.timeout(10):
            while word not in self.words:
                self._news.clear()
                await self._news.wait()


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
