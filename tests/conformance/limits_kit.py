"""What the tests of limits share: jobs under limits, in one line each."""

from __future__ import annotations

from typing import Any

from outlast.model.limits import LimitSpec, Need, needs_text, permit_id, stream_id
from outlast.store.limits import NewLimit, PermitRow
from outlast.store.protocol import Store
from outlast.store.values import NewJob
from tests.conformance.kit import TASK


def need(name: str, key: str = "", cost: float = 1.0) -> Need:
    """One permit, as a client computes it."""
    return Need(permit_id(name, key), name, key, cost)


def limited(*needs: Need, fair: str | None = None, **fields: Any) -> NewJob:
    """A job of the known task under these limits."""
    values: dict[str, Any] = {"task": TASK, "queue": "default", "priority": 0, "tenant": fair}
    values |= fields
    stream = stream_id(values["task"], values["queue"], values["priority"], needs, fair)
    return NewJob(**values, stream=stream, needs=needs_text(needs))


async def declare(store: Store, name: str = "a", **spec: Any) -> None:
    """Declare one limit."""
    await store.declare_limits([NewLimit(name, LimitSpec(**spec))])


async def permit(store: Store, name: str = "a", key: str = "") -> PermitRow:
    """Return one permit's row, which must be there."""
    return next(row for row in await store.inspector.permits(name) if row.key == key)


async def held(store: Store, name: str = "a", key: str = "") -> int:
    """Return how many attempts hold a permit: what is used, without what is noted (law L1)."""
    row = await permit(store, name, key)
    return row.used - row.noted


async def prune_in_turn(store: Store) -> list[int]:
    """Prune three rows at a time, as a pruner does; return what each of three runs says."""
    return [
        await store.prune(jobs_older_than=9e9, workers_older_than=9e9, limit=3) for _ in range(3)
    ]
