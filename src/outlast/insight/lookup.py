"""Find a job or a worker by what a person has at hand: an id, a token, a key, a name."""

from __future__ import annotations

from typing import NamedTuple

from outlast.insight.queries import read_workers
from outlast.store.protocol import Store

ID_MAX = 2**63 - 1


class LookupTarget(NamedTuple):
    """The result of a lookup: ``jobs`` or ``workers``, and the id."""

    kind: str
    id: int


async def look_up(store: Store, text: str, tenant: str | None = None) -> LookupTarget | None:
    """Return the job with this id, else with this token or (while unfinished) this key, else the
    newest worker of this name. ``tenant``: only jobs of this tenant, and no workers."""
    number = (
        int(text) if text.isascii() and text.isdigit() and len(text) < len(str(ID_MAX)) else None
    )
    ids = [] if number is None else [number]
    for one in (*ids, *await store.inspector.named(number, text)):
        found = await store.inspector.jobs_of([one], 0)
        if found and tenant in {None, found[0].tenant}:
            return LookupTarget("jobs", one)
    if tenant is not None:
        return None
    workers = [one.id for one in await read_workers(store) if one.name == text]
    return LookupTarget("workers", max(workers)) if workers else None
