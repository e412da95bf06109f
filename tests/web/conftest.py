"""A store of each kind, open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outlast.store import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from outlast.store.protocol import Store


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An empty store."""
    made = open_store(store_url)
    await made.open()
    yield made
    await made.close()
