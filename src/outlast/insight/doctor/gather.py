"""Read the facts that the checks need from a store, as far as it can be read."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.errors import NotPermitted, SchemaMismatch, StoreError, text_of
from outlast.insight.queries import read_workers
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter

DEAD_LOOKED_AT = 50  # jobs that died last
SCHEDULES_LOOKED_AT = 500  # by name


async def gather(
    store: Store, check_exists: Callable[[Store], Awaitable[None]], *, encrypted: bool = False
) -> dict[str, Any]:
    """Open the store and return fields of ``Facts``: what could be read, and what prevented the
    rest.

    ``check_exists`` raises if there is no store: opening one would create it. ``encrypted``: look
    for payloads that are not encrypted.
    """
    seen: dict[str, Any] = {}
    try:
        await check_exists(store)
        await read_environment(store, seen)
        await store.open()
        await read_contents(store, seen)
        died = await store.inspector.jobs(JobFilter(state=State.DEAD, limit=DEAD_LOOKED_AT))
        seen["malformed"] = {row.id: row.malformed for row in died if row.malformed is not None}
        if encrypted:
            seen["unencrypted"] = await store.inspector.unencrypted()
    except SchemaMismatch as error:
        seen["mismatch"] = text_of(error)
    except NotPermitted as error:
        seen["denied"] = text_of(error)
        with contextlib.suppress(StoreError):
            # a producer's role may not read the schema's version
            limited = (await store.inspector.environment()).limited_to is not None
            if limited and "environment" not in seen:
                await read_environment(store, seen)
    except StoreError as error:
        seen["error"] = text_of(error)
    return seen


async def read_environment(store: Store, seen: dict[str, Any]) -> None:
    """Read the environment, and our clock halfway through, to compare it with the store's."""
    before = SYSTEM.wall()
    seen["environment"] = await store.inspector.environment()
    seen["asked_at"] = (before + SYSTEM.wall()) / 2


async def read_contents(store: Store, seen: dict[str, Any]) -> None:
    """Read the facts about workers, what waits for them, and schedules, one after the other."""
    seen["workers"] = await read_workers(store)
    seen["pauses"] = await store.inspector.pauses()
    seen["held"] = await store.inspector.held()
    seen["statistics"] = await store.inspector.statistics()
    seen["schedules"] = await store.inspector.schedules(SCHEDULES_LOOKED_AT)
