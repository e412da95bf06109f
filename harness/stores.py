"""An open store for as long as a block lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from outlast.store import open_store
from outlast.store.protocol import Store

AnyStore = TypeVar("AnyStore", bound=Store)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Store]:
    """Open the store with this URL; close it in the end."""
    async with held_open(open_store(url, **options)) as store:
        yield store


@asynccontextmanager
async def held_open(store: AnyStore) -> AsyncIterator[AnyStore]:
    """Open this store; close it in the end."""
    await store.open()
    try:
        yield store
    finally:
        await store.close()
