"""Read what needs attention, and how the queues stand, for an operator's first page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.insight.documents import Document
from outlast.insight.queries import read_workers
from outlast.insight.stats import stats_document
from outlast.model.pause import Pause
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow
from outlast.store.statistics import Statistics


class Overview(msgspec.Struct, frozen=True):
    """The contents of a store and its workers. ``stats`` is the document of ``outlast stats``."""

    stats: Document
    statistics: Statistics
    workers: Sequence[WorkerRow]
    pauses: Sequence[Pause]


async def read_overview(store: Store) -> Overview:
    """Read the overview: each number by an index, and bounded."""
    statistics = await store.inspector.statistics()
    workers, pauses = await read_workers(store), await store.inspector.pauses()
    return Overview(stats_document(statistics, workers, pauses), statistics, workers, pauses)
