"""The stores that the conformance suite runs on: it knows only the protocols in
store/protocol.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outlast.store import open_store
from outlast.store.protocol import Store
from tests.conformance.kit import Hands


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open, empty store; each test runs once on every kind."""
    store = open_store(store_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other_store(store_url: str, store: Store) -> AsyncIterator[Store]:
    """The same store through other connections."""
    other = open_store(store_url)
    await other.open()
    yield other
    await other.close()


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
