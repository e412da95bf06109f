"""A worker on SQLite hears of a commit within a few looks at the file's version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlast.clock import SYSTEM
from outlast.store.sqlite import SqliteStore
from outlast.wakeup.sqlite import POLL_SECONDS, SqliteWakeup
from tests.conformance.kit import Hands, enqueued, eventually


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(sqlite_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def wakes(store: SqliteStore) -> AsyncIterator[list[str]]:
    """What the wake-up has said so far, once it looks."""
    heard: list[str] = []
    wakeup = SqliteWakeup(store.url, SYSTEM)
    await wakeup.start(heard.append)

    async def healthy() -> bool:
        return wakeup.health.good

    await eventually(healthy)
    yield heard
    await wakeup.close()
    await wakeup.close()
    assert not wakeup.health.good


async def test_a_commit_wakes(store: SqliteStore, wakes: list[str]) -> None:
    await enqueued(store)

    async def woken() -> list[str]:
        return wakes

    assert (await eventually(woken))[0] == ""


async def test_an_exchange_that_finds_nothing_wakes_nobody(
    store: SqliteStore, wakes: list[str]
) -> None:
    hands = await Hands.on(store)
    await asyncio.sleep(5 * POLL_SECONDS)
    wakes.clear()
    for _ in range(5):
        await hands.claim()
    await asyncio.sleep(5 * POLL_SECONDS)
    assert wakes == []
