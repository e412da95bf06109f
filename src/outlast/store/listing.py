"""Finds ids of jobs for a list, look by look; one look may not find all that are asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any

import msgspec

from outlast.model.job import State
from outlast.store.columns import ID_MAX, ID_MIN
from outlast.store.rows import JobFilter, JobIds
from outlast.store.statements import Row, Rows

LOOK_ROWS = 20_000  # rows read by one look for jobs
LABELS_APART, DEAD_APART = 20, 5  # adjacent rows cost as much as one of these
Look = Callable[[JobFilter], Awaitable[JobIds]]


def rows_of(which: JobFilter) -> int:
    """Return how many rows a look may read: fewer where each may lie on a page of its own (dead
    jobs), and where each job is looked up in another table (labels)."""
    rows = LOOK_ROWS if which.look_rows is None else which.look_rows
    if which.label is not None:
        return max(1, rows // LABELS_APART)
    return max(1, rows // DEAD_APART) if which.state is State.DEAD else rows


def page(ids: Sequence[int], limit: int, floor: int | None) -> JobIds:
    """Return the result of a look. ``floor``: the id down to which it looked; None: to the end."""
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


Choose = Callable[[Rows, JobFilter, dict[str, Any]], Awaitable[str]]


async def find_ids(rows: Rows, which: JobFilter, choose: Choose) -> JobIds:
    """Return the ids that one look finds, by the index of a state or by a bounded walk. ``choose``:
    how a store finds queued jobs."""
    if which.fingerprint is not None and which.state is not State.DEAD:
        return JobIds()
    values = msgspec.structs.asdict(which) | {"rows": rows_of(which)}
    values["last"] = ID_MAX if which.before_id is None else which.before_id - 1
    kind = _kind(which)
    if kind == "queued":
        kind = await choose(rows, which, values)
    if kind == "all":
        return await _walk(rows, which, values)
    floor = await _floor(rows, kind, values) if kind in {"label", "dead"} else None
    values["floor"] = ID_MIN if floor is None else floor
    return page(_ids(await rows("find_jobs", kind, **values)), which.limit, floor)


def _kind(which: JobFilter) -> str:
    if which.label is not None:
        return "label"
    has_index = which.state in {State.QUEUED, State.BLOCKED, State.RUNNING, State.DEAD}
    return str(which.state) if has_index else "all"


async def _walk(rows: Rows, which: JobFilter, values: dict[str, Any]) -> JobIds:
    """Return the matches among the next rows by id; if too few, with the id where these end."""
    ids = _ids(await rows("find_jobs", "all", **values))
    floor = None if len(ids) >= which.limit else await _floor(rows, "all", values)
    return page(ids, which.limit, floor)


async def _floor(rows: Rows, kind: str, values: dict[str, Any]) -> int | None:
    """Return the id of the last row that is looked at; None: all are."""
    found = _ids(await rows("find_jobs", f"{kind}_floor", **values))
    return found[0] if found else None


async def is_long(rows: Rows, values: dict[str, Any]) -> bool:
    """Whether this part of the queue is too long for a look. Then a walk by id soon finds some."""
    return bool((await rows("find_jobs", "queued_more", **values))[0]["is_long"])


def _ids(rows: Sequence[Row]) -> list[int]:
    return [row["id"] for row in rows]
