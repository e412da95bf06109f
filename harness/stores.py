"""An open store for as long as a block lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from outlast.store import open_store
from outlast.store.protocol import Store


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Store]:
    """Open the store with this URL; close it in the end."""
    store = open_store(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
