"""How a store goes on from look to look, where one look does not find all that is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf

import msgspec

from outlast.model.job import State
from outlast.store.protocol import LOOK_ROWS
from outlast.store.rows import JobFilter, JobIds

LABELS_APART, DEAD_APART = 20, 5  # rows in a line cost as much as one of these
Look = Callable[[JobFilter], Awaitable[JobIds]]


def rows_of(which: JobFilter) -> int:
    """Return how many rows a look may read. Those that are far apart (dead ones) are fewer: each
    may lie on a page of its own, though an index shows it; and where the job of each is looked up
    in another table (of a label), it costs several pages."""
    rows = LOOK_ROWS if which.look_rows is None else which.look_rows
    if which.label is not None:
        return max(1, rows // LABELS_APART)
    return max(1, rows // DEAD_APART) if which.state is State.DEAD else rows


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
