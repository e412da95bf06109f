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
    kind = "find_dead" if which.state is State.DEAD else "find_all"
    floor = await connection.fetchval(sql(f"{kind}_floor"), last, rows_max)
    least = ID_MIN if floor is None else floor
    asked = (which.state, which.limit)
    if which.state is State.DEAD and which.fingerprint and filters[1:] == (None, None, None):
        alike = (last, least, which.fingerprint, which.limit)
        return _page(await connection.fetch(sql("find_group"), *alike), which, floor)
    if which.state is State.DEAD:
        asked = (which.limit, which.fingerprint)
    rows = await connection.fetch(sql(kind), *filters, least, *asked)
    return _page(rows, which, floor)


async def _is_long(connection: Any, which: JobFilter, part: str | None) -> bool:
    """Whether this part of the queue has more rows than a look may read: it is walked by id then,
    which soon finds some, since they are many."""
    if which.look_rows is None:
        return False
    return bool(await connection.fetchval(sql("queued_more"), which.look_rows, part))


def _page(rows: list[Any], which: JobFilter, floor: int | None = None) -> JobIds:
    return page([row["id"] for row in rows], which.limit, floor)
