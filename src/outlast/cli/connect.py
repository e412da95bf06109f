"""Opening a store for one command. Commands that do not enqueue make nothing: no file, no schema.

A queue that appears out of a typing error in a path is worse than a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from outlast.config import resolve_url
from outlast.credentials import redacted
from outlast.errors import SchemaMismatch, StoreUnavailable
from outlast.store.protocol import Store

R = TypeVar("R")

SQLITE = "sqlite:"


def on_store(url: str | None, work: Callable[[Store], Awaitable[R]], *, reads: bool = True) -> R:
    """Run ``work(store)`` on the store that the URL names, which must exist; return its result.

    ``reads``: the work only reads, so a file that this user may not write will do.
    """

    async def there() -> R:
        async with existing(resolve_url(url), reads=reads) as store:
            return await work(store)

    return asyncio.run(there())


@asynccontextmanager
async def existing(url: str, *, reads: bool) -> AsyncIterator[Store]:
    """Give the open store at ``url``.

    Raises StoreUnavailable where there is no file, SchemaMismatch where there is no schema.
    """
    store = make(url, reads=reads)
    try:
        await check_exists(store)
        await store.open()
        yield store
    finally:
        await store.close()


def make(url: str, *, reads: bool = False, pooler: bool = False) -> Store:
    """Return the store at ``url``, not opened. ``pooler``: there may be one in between."""
    from outlast.store import open_store

    settings: dict[str, Any] = {"read_only": True} if reads else {}
    if not is_sqlite(url):
        settings = {"pooler": True} if pooler else {}
    return open_store(url, **settings)


def is_sqlite(url: str) -> bool:
    """Whether the URL names a SQLite file."""
    return url.lower().startswith(SQLITE)


def file_of(url: str) -> str | None:
    """Return the absolute path of a SQLite store, or None."""
    if not is_sqlite(url):
        return None
    from outlast.store.sqlite.url import parse

    return str(parse(url).path)


def exists(url: str) -> bool:
    """Whether the file of a SQLite store is there; other stores always are."""
    if not is_sqlite(url):
        return True
    from outlast.store.sqlite.url import parse

    return parse(url).path.exists()


def place(url: str) -> str:
    """Return where the store is, for people: the file's absolute path, or the redacted URL."""
    return file_of(url) or redacted(url)


def missing(job_id: int, url: str | None) -> str:
    """Return that this store has no such job, and which store that is."""
    return f"there is no job {job_id} in {place(resolve_url(url))}"


async def check_exists(store: Store) -> None:
    """Raise StoreUnavailable where there is no file, SchemaMismatch where there is no schema."""
    if not exists(store.url):
        raise StoreUnavailable(
            f"there is no database file {place(store.url)}\n"
            "give --url or set OUTLAST_URL; `outlast migrate` makes a new one"
        )
    steps = await store.migrations()
    if not any(step.applied_at is not None for step in steps):
        raise SchemaMismatch(
            f"{place(store.url)} is not an Outlast store yet: `outlast migrate` makes it one"
        )
