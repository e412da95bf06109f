"""How a store goes on from look to look, where one look does not find all that is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from outlast.store.rows import JobFilter, JobIds

Look = Callable[[JobFilter], Awaitable[JobIds]]


def page(ids: Sequence[int], limit: int, floor: int | None) -> JobIds:
    """Return what a look has found. ``floor``: the id down to which it looked; None: to the end."""
    return JobIds(ids=list(ids), before=ids[-1] if ids[limit - 1 :] else floor)


async def find_all(look: Look, which: JobFilter) -> list[int]:
    """Return ids by as many looks as it takes."""
    found: list[int] = []
    before = which.before_id
    while len(found) < which.limit:
        left = which.limit - len(found)
        seen = await look(msgspec.structs.replace(which, limit=left, before_id=before))
        found += seen.ids
        before = seen.before
        if before is None:
            break
    return found
