"""Finds ids of jobs for a list: by an index where one knows the state, else by a bounded walk."""

from __future__ import annotations

from typing import Any

from outlast.model.job import State
from outlast.store.columns import ID_MAX, ID_MIN
from outlast.store.listing import page, rows_of
from outlast.store.postgres.statements import sql
from outlast.store.rows import JobFilter, JobIds


async def find_ids(connection: Any, which: JobFilter) -> JobIds:
    """Return what one look finds, in the caller's transaction, which reads by index."""
    last = ID_MAX if which.before_id is None else which.before_id - 1
    rows_max = rows_of(which)
    filters = (last, which.queue, which.task, which.tenant)
    if which.label is not None:
        floor = await connection.fetchval(sql("find_label_floor"), last, rows_max, which.label)
        least = ID_MIN if floor is None else floor
        values = (*filters, least, which.state, which.limit, which.label)
        return _page(await connection.fetch(sql("find_label"), *values), which, floor)
    if which.state is State.RUNNING:
        asked: tuple[Any, ...] = (*filters, which.limit, which.worker_id)
        return _page(await connection.fetch(sql("find_running"), *asked), which)
    part = None if which.part is None else which.part.value
    if which.state is State.QUEUED and not await _is_long(connection, which, part):
        return _page(await connection.fetch(sql("find_queued"), *filters, part, which.limit), which)
    if which.state is not State.DEAD:
        return await _walk(connection, which, filters, rows_max)
    floor = await connection.fetchval(sql("find_dead_floor"), last, rows_max)
    least = ID_MIN if floor is None else floor
    if which.fingerprint and filters[1:] == (None, None, None):
        alike = (last, least, which.fingerprint, which.limit)
        return _page(await connection.fetch(sql("find_group"), *alike), which, floor)
    asked = (*filters, least, which.limit, which.fingerprint)
    return _page(await connection.fetch(sql("find_dead"), *asked), which, floor)


async def _walk(
    connection: Any, which: JobFilter, filters: tuple[Any, ...], rows_max: int
) -> JobIds:
    """Return what is found among the next rows by id; where it is less than what is asked for, with
    the id down to which they go: that reads all of them."""
    asked = (*filters, rows_max, which.state, which.limit)
    rows = await connection.fetch(sql("find_all"), *asked)
    if len(rows) >= which.limit:
        return _page(rows, which)
    return _page(
        rows, which, await connection.fetchval(sql("find_all_floor"), filters[0], rows_max)
    )


async def _is_long(connection: Any, which: JobFilter, part: str | None) -> bool:
    """Whether this part of the queue has more rows than a look may read: it is walked by id then,
    which soon finds some, since they are many."""
    if which.look_rows is None:
        return False
    return bool(await connection.fetchval(sql("queued_more"), which.look_rows, part))


def _page(rows: list[Any], which: JobFilter, floor: int | None = None) -> JobIds:
    return page([row["id"] for row in rows], which.limit, floor)
