"""A server that has as many sessions as it may have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.store.postgres import readable
from outlast.store.postgres.errors import has_no_place
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import Hands

PLACES = 3  # for those that are no superuser


@pytest.fixture(scope="module")
def crowded_url() -> Iterator[str]:
    with PostgresServer(settings={"max_connections": str(PLACES + 3)}) as server:
        server.create_database("crowded")
        server.sql("CREATE ROLE guest LOGIN; ALTER DATABASE crowded OWNER TO guest")
        yield server.url("crowded").replace("postgres@", "guest@")


@pytest.fixture
async def guests(crowded_url: str) -> AsyncIterator[list[Any]]:
    """Sessions in all places."""
    async with AsyncExitStack() as stack:
        guests = [await asyncpg.connect(crowded_url) for _ in range(PLACES)]
        for each in guests:
            stack.push_async_callback(each.close)
        yield guests


@pytest.mark.slow
async def test_a_worker_waits_for_its_first_session_and_works_with_two(
    crowded_url: str, guests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, real = asyncio.Event(), has_no_place

    def tells(error: BaseException) -> bool:
        if real(error):
            refused.set()
        return real(error)

    monkeypatch.setattr(readable, "has_no_place", tells)
    store = PostgresStore(crowded_url, connections=2, reserved=1)
    beats = PostgresStore(crowded_url)
    opening = asyncio.create_task(store.open())
    try:
        async with asyncio.timeout(30):
            await refused.wait()
        assert not opening.done()
        await guests[0].close()
        await guests[1].close()
        async with asyncio.timeout(30):
            await opening
            await beats.open()
        hands = await Hands.on(store)
        assert (await beats.heartbeat(hands.me)).renewed
    finally:
        opening.cancel()
        await store.close()
        await beats.close()


async def test_a_program_is_told_at_once_that_there_is_no_place(
    crowded_url: str, guests: list[Any]
) -> None:
    store = PostgresStore(crowded_url)
    with pytest.raises(StoreUnavailable, match=r"connection slots|too many clients"):
        await store.open()
    await store.close()
    assert len(guests) == PLACES
