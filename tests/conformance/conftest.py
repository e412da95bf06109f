"""The stores that the conformance suite runs on: it knows only the protocols in
store/protocol.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from harness.stores import opened
from outlast.store.protocol import Store
from tests.conformance.kit import Hands
from tests.conftest import THROUGH
from tests.kept import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
def pg_store_url(request: pytest.FixtureRequest) -> str:
    """A database that tests share; one of its own for a test that asks for its address, too."""
    own = THROUGH is not None or "pg_url" in request.fixturenames
    url: str = request.getfixturevalue("pg_url" if own else "kept_url")
    return url


@pytest.fixture
async def other_store(store_url: str, store: Store) -> AsyncIterator[Store]:
    """The same store through other connections."""
    async with opened(store_url) as other:
        yield other


@pytest.fixture
async def session(pg_url: str) -> AsyncIterator[Any]:
    """A session of the test's own on PostgreSQL."""
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


@pytest.fixture
async def bare_session(bare_pg_url: str) -> AsyncIterator[Any]:
    """A session on a database without tables."""
    connection = await asyncpg.connect(bare_pg_url)
    yield connection
    await connection.close()


@pytest.fixture
async def watcher(pg_url: str, store: Store) -> AsyncIterator[Any]:
    """A session that watches the other sessions."""
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


@pytest.fixture
async def hands(store: Store) -> Hands:
    """A registered worker."""
    return await Hands.on(store)
