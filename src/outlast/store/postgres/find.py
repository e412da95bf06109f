"""Finds ids of jobs for a list: by an index where one knows the state, else by a bounded walk."""

from __future__ import annotations

from typing import Any

from outlast.model.job import State
from outlast.store.columns import ID_MAX, ID_MIN
from outlast.store.listing import page, rows_of
from outlast.store.rows import JobFilter, JobIds
from outlast.store.statements import statements

_SQL = statements("postgres", "find_jobs")

# Rows of a queue that one look reads by their index: unlike those next to each other by id, each
# may lie on a page of its own, which has to come from the disk where nothing is in memory.
QUEUED_MAX = 4_000
PROBES_MAX = 1_000  # in search of the tasks that a queue has in the line


async def find_ids(connection: Any, which: JobFilter) -> JobIds:
    """Return what one look finds, in the caller's transaction, which reads by index."""
    last = ID_MAX if which.before_id is None else which.before_id - 1
    rows_max = rows_of(which)
    filters = (last, which.queue, which.task, which.tenant)
    if which.label is not None:
        floor = await connection.fetchval(_SQL["label_floor"], last, rows_max, which.label)
        least = ID_MIN if floor is None else floor
        values = (*filters, least, which.state, which.limit, which.label)
        return _page(await connection.fetch(_SQL["label"], *values), which, floor)
    if which.state is State.RUNNING:
        asked: tuple[Any, ...] = (*filters, which.limit, which.worker_id)
        return _page(await connection.fetch(_SQL["running"], *asked), which)
    if which.state is State.QUEUED:
        part = None if which.part is None else which.part.value
        tasks = await _tasks_of(connection, which)
        if not await _is_long(connection, which, part, tasks):
            asked = (*filters, part, which.limit, tasks)
            return _page(await connection.fetch(_SQL["queued"], *asked), which)
    if which.state is not State.DEAD:
        return await _walk(connection, which, filters, rows_max)
    floor = await connection.fetchval(_SQL["dead_floor"], last, rows_max)
    least = ID_MIN if floor is None else floor
    if which.fingerprint and filters[1:] == (None, None, None):
        alike = (last, least, which.fingerprint, which.limit)
        return _page(await connection.fetch(_SQL["group"], *alike), which, floor)
    asked = (*filters, least, which.limit, which.fingerprint)
    return _page(await connection.fetch(_SQL["dead"], *asked), which, floor)


async def _walk(
    connection: Any, which: JobFilter, filters: tuple[Any, ...], rows_max: int
) -> JobIds:
    """Return what is found among the next rows by id; where it is less than what is asked for, with
    the id down to which they go: that reads all of them."""
    part = None if which.part is None else which.part.value
    asked = (*filters, rows_max, which.state, which.limit, part)
    rows = await connection.fetch(_SQL["all"], *asked)
    if len(rows) >= which.limit:
        return _page(rows, which)
    return _page(rows, which, await connection.fetchval(_SQL["all_floor"], filters[0], rows_max))


async def _tasks_of(connection: Any, which: JobFilter) -> list[str] | None:
    """Return whose lanes of the line have to be read; None: all have."""
    if which.task is not None or which.queue is None:
        return None if which.task is None else [which.task]
    found = await connection.fetchrow(_SQL["lined"], which.queue, PROBES_MAX)
    return list(found["tasks"]) if found["probes"] < PROBES_MAX else None


async def _is_long(
    connection: Any, which: JobFilter, part: str | None, tasks: list[str] | None
) -> bool:
    """Whether this part of the queue has more rows than a look may read: it is walked by id then,
    which soon finds some, since they are many."""
    values = (min(QUEUED_MAX, rows_of(which)), part, which.queue, tasks)
    return bool(await connection.fetchval(_SQL["queued_more"], *values))


def _page(rows: list[Any], which: JobFilter, floor: int | None = None) -> JobIds:
    return page([row["id"] for row in rows], which.limit, floor)
