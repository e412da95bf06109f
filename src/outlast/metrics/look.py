"""Read a store for the metrics: a few bounded reads, none of which touches a payload."""

from __future__ import annotations

import msgspec

from outlast.insight.queries import read_workers
from outlast.model.pause import Pause
from outlast.store.minutes import Counted
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow
from outlast.store.statistics import Statistics


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one read; ``totals``: the workers' counts since the store was made."""

    statistics: Statistics
    workers: list[WorkerRow]
    pauses: list[Pause]
    totals: list[Counted]


async def read_look(store: Store) -> Look:
    """Read the store. Raises StoreError if it cannot be read."""
    inspector = store.inspector
    return Look(
        statistics=await inspector.statistics(),
        workers=await read_workers(store),
        pauses=await inspector.pauses(),
        totals=await inspector.totals(),
    )
