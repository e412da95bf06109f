"""Runs the inspector's statements on SQLite, and the reads that differ there."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from sqlite3 import Cursor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from outlast.base.sync import drive
from outlast.model.limits import needs_of
from outlast.store.inspector import Inspector
from outlast.store.listing import is_long
from outlast.store.lockfile import boot_id, written_at
from outlast.store.rows import CHOSEN, LOOK_BYTES, JobFilter, Searched, Texts, WorkerRow
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.statements import statements
from outlast.store.statements import Row, Rows
from outlast.store.statistics import COUNT_MAX

if TYPE_CHECKING:
    from outlast.store.finding import Environment
    from outlast.store.sqlite.permits import Permits

T = TypeVar("T")
_SNAPSHOT = statements("session")
TASKS_MAX = 1_000  # of the line that are read


class SqliteInspector(Inspector):
    """The ``Inspector`` of a SQLite store."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._file = connection.path

    async def _rows(self, topic: str, name: str, /, **values: Any) -> list[Row]:
        return await self._connection.read(
            lambda cursor, now: fetch(cursor, topic, name, values | {"now": now})
        )

    async def _look(self, look: Callable[[Rows], Awaitable[T]]) -> T:
        return await self._connection.read(lambda cursor, now: look_at(cursor, now, look))

    async def _kind_of_list(self, rows: Rows, which: JobFilter, values: dict[str, Any]) -> str:
        """The indexes of the queue hold its name and the task; other filters walk the rows."""
        others = [getattr(which, one) for one in CHOSEN if one not in {"queue", "task"}]
        is_walked = any(one is not None for one in others) or await is_long(rows, values)
        return "all" if is_walked else "queued"

    async def workers(self) -> list[WorkerRow]:
        """The last beat is in the lock file, and on the row only later."""
        rows = await super().workers()
        return [_as_heard(row) for row in rows]

    async def search(
        self, ids: Sequence[int], texts: Texts, size_max: int = LOOK_BYTES
    ) -> Searched:
        values = msgspec.structs.asdict(texts) | {"ids": sorted(ids, reverse=True)}
        return await self._connection.read(
            lambda cursor, now: _search(cursor, values | {"now": now}, size_max)
        )

    async def wanted(self, queue: str) -> int:
        from outlast.store.sqlite.permits import Permits

        def count(cursor: Cursor, now: float) -> int:
            return look_at(
                cursor, now, lambda rows: count_wanted(rows, queue, Permits(cursor, now))
            )

        return await self._connection.read(count)

    async def environment(self) -> Environment:
        from outlast.store.sqlite.environment import environment

        return await environment(self._connection)


def _as_heard(row: WorkerRow) -> WorkerRow:
    if row.lock_path is None or row.stopped_at is not None or row.boot_id != boot_id():
        return row
    at = written_at(row.lock_path, row.lock_device, row.lock_inode)
    later = 0.0 if at is None else at - row.heartbeat_at
    if at is None or later <= 0.0:
        return row
    return msgspec.structs.replace(
        row,
        heartbeat_at=at,
        lease_expires_at=row.lease_expires_at + later,
        unheard=max(0.0, row.unheard - later),
    )


def look_at(cursor: Cursor, now: float, look: Callable[[Rows], Awaitable[T]]) -> T:
    cursor.execute(_SNAPSHOT["snapshot"])
    try:
        return run_at_once(look(rows_on(cursor, now)))
    finally:
        cursor.execute(_SNAPSHOT["rollback"])


def rows_on(cursor: Cursor, now: float) -> Rows:

    async def rows(topic: str, name: str, /, **values: Any) -> list[Row]:
        return fetch(cursor, topic, name, values | {"now": now})

    return rows


async def _awaited(found: Awaitable[T]) -> T:
    return await found


def run_at_once(work: Awaitable[T]) -> T:
    """Return the result of work that waits for nothing."""
    return drive(_awaited(work))


def fetch(cursor: Cursor, topic: str, name: str, values: Mapping[str, Any]) -> list[Row]:
    cursor.execute(statements(topic)[name], _bindable(values))
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _bindable(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _encode(one).decode() if isinstance(one, (list, tuple)) else one
        for name, one in values.items()
    }


_encode = msgspec.json.Encoder().encode


def _search(cursor: Cursor, values: Mapping[str, Any], size_max: int) -> Searched:
    """Rows after the last one that counts are not read."""
    found: list[int] = []
    last, size = None, 0
    search = statements("inspect")["search"]
    for job_id, length, holds in cursor.execute(search, _bindable(values)):
        if last is not None and size + length > size_max:
            return Searched(ids=found, before=last, size=size)
        last, size = job_id, size + length
        if holds:
            found.append(job_id)
    return Searched(ids=found, size=size)


async def count_wanted(rows: Rows, queue: str, permits: Permits) -> int:
    (running,) = await rows("inspect", "wanted_running", queue=queue, most=COUNT_MAX)
    return min(COUNT_MAX, await _due(rows, queue, permits) + int(running["number"]))


async def _due(rows: Rows, queue: str, permits: Permits) -> int:
    paused = {(row["kind"], row["name"]) for row in await rows("inspect", "wanted_paused")}
    if paused & {("all", ""), ("queue", queue)}:
        return 0
    tenants = [name for kind, name in paused if kind == "tenant"]
    rows = partial(rows, queue=queue, tenants=tenants)
    may_run = await _find_servable(rows, queue)
    count = 0
    for row in await rows("inspect", "wanted_tasks", tasks_max=TASKS_MAX):
        task = row["task"]
        if count < COUNT_MAX and ("task", task) not in paused and may_run(task):
            left = COUNT_MAX - count
            count += (await rows("inspect", "wanted_lined", task=task, most=left))[0]["number"]
    for part, most in (("streams", COUNT_MAX), ("due", COUNT_MAX), ("moved_on", 1)):
        for row in await rows("inspect", f"wanted_{part}", most=COUNT_MAX) if count < most else ():
            if count < most and ("task", row["task"]) not in paused and may_run(row["task"]):
                is_stream = part == "streams"
                count += await _count_startable(rows, permits, row) if is_stream else row["number"]
    return count


async def _count_startable(rows: Rows, permits: Permits, stream: Row) -> int:
    """Return how many jobs of an open stream may start, and let them have their permits."""
    needs = needs_of(stream["needs"])
    permits.read(needs)
    room = min(
        [COUNT_MAX, *(permits.budgets[need.permit].room(need.cost).starts for need in needs)]
    )
    values = {"task": stream["task"], "stream": stream["id"], "most": COUNT_MAX, "room": room}
    (row,) = await rows("inspect", "wanted_of_stream", **values)
    for need in needs:
        permits.budgets[need.permit].take(row["number"], need.cost)
    return int(row["number"])


async def _find_servable(rows: Rows, queue: str) -> Callable[[str], bool]:
    """Return which tasks of this queue more workers would take: all if no worker serves the queue,
    otherwise the tasks of its workers, living or gone."""
    workers = await rows("inspect", "wanted_workers", most=COUNT_MAX)
    serving = [row for row in workers if row["queues"] == "[]" or _quoted(queue) in row["queues"]]
    if not any(row["lives"] for row in serving):
        return lambda task: True
    announced = {row["tasks"] for row in serving}
    return lambda task: any(_quoted(task) in tasks for tasks in announced)


def _quoted(name: str) -> str:
    return json.dumps(name)  # as a worker's row has it
