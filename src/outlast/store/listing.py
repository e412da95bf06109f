"""How a store goes on from look to look, where one look does not find all that is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf

import msgspec

from outlast.store.rows import JobFilter, JobIds

Look = Callable[[JobFilter], Awaitable[JobIds]]


def page(ids: Sequence[int], limit: int, floor: int | None) -> JobIds:
    """Return what a look has found. ``floor``: the id down to which it looked; None: to the end."""
    return JobIds(ids=list(ids), before=ids[-1] if ids[limit - 1 :] else floor)


async def find(look: Look, which: JobFilter, looks_max: float = inf) -> JobIds:
    """Return ids by as many looks as it takes, or ``looks_max``."""
    found: list[int] = []
    before, looks = which.before_id, 0
    while looks < looks_max:
        left = which.limit - len(found)
        seen = await look(msgspec.structs.replace(which, limit=left, before_id=before))
        found += seen.ids
        before, looks = seen.before, looks + 1
        if before is None or len(found) >= which.limit:
            break
    return JobIds(ids=found, before=before)
