"""An application and its store, and what the tests of a worker in process wait for."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

import outlast
from harness.stores import opened
from outlast.store.protocol import Store

DEADLINE = 60.0  # seconds until a test fails because something did not happen


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await done():
            await asyncio.sleep(0.01)


@pytest.fixture
async def app(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> AsyncIterator[outlast.App]:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    made = outlast.App(store_url)
    yield made
    await made.close()


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with opened(store_url) as store:
        yield store


async def has_state(job: outlast.Job[Any], state: str) -> bool:
    return (await row_of(job)).state == state


async def row_of(job: outlast.Job[Any]) -> outlast.JobRow:
    await job.refresh()
    assert job.row is not None
    return job.row


@contextlib.asynccontextmanager
async def transaction(url: str) -> AsyncIterator[Any]:
    """A transaction of a task's own, on the store's database; committed unless the body raises."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        return
    session = await asyncpg.connect(url)
    try:
        async with session.transaction():
            yield session
    finally:
        await session.close()


async def run_sql(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on the connection of a transaction; return its rows."""
    if isinstance(connection, sqlite3.Connection):
        return connection.execute(statement).fetchall()
    return [tuple(row) for row in await connection.fetch(statement)]
