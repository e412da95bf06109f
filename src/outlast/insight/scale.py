"""How many workers a queue could use, for autoscalers: KEDA and others that ask over HTTP."""

from __future__ import annotations

from outlast.insight.documents import SCHEMA, Document
from outlast.store.protocol import Store
from outlast.store.statistics import COUNT_MAX


async def read_scale(store: Store, queue: str) -> Document:
    """Return how many jobs of a queue want a worker, as one JSON document: ``wanted`` are those
    that are due and that more workers would take, and those that run. It stops at COUNT_MAX, which
    ``at_least`` tells. On PostgreSQL ``SELECT outlast_wanted_v1('QUEUE')`` is the same number."""
    wanted = await store.inspector.wanted(queue)
    return {"schema": SCHEMA, "queue": queue, "wanted": wanted, "at_least": wanted >= COUNT_MAX}
