"""Runs the inspector's statements on PostgreSQL, and the reads that differ there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from outlast.base.clock import SYSTEM
from outlast.errors import NotPermitted, StoreError
from outlast.store.inspector import Inspector
from outlast.store.limits import LONG_LOCK_SECONDS, LockHolder
from outlast.store.listing import is_long, rows_of
from outlast.store.postgres.connection import Transaction, find_roles
from outlast.store.postgres.hosts import attributes_of
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.statements import array_text, storable
from outlast.store.postgres.statements import fetch as fetch_rows
from outlast.store.rows import LOOK_BYTES, JobFilter, Searched, Texts
from outlast.store.statements import Row, Rows, statements
from outlast.store.values import Purpose

if TYPE_CHECKING:
    from outlast.store.finding import Environment, NoWrites

_SQL = statements("postgres", "environment")
_MISLED = statements("postgres", "migrate")["misled"]

T = TypeVar("T")

# Rows of a queue that one look reads by their index: unlike rows with adjacent ids, each may lie on
# a different page, which has to come from the disk if it is not cached.
QUEUED_MAX = 4_000
KNOWS_COLLATIONS = 150_000  # the version of PostgreSQL
_NUMBERS = ("ids", "positions", "tokens", "permits", "blocking")  # lists of them
PROBES_MAX = 1_000  # in search of the tasks that a queue has in the line


class PostgresInspector(Inspector):
    """The ``Inspector`` on the connections of a store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def _rows(self, topic: str, name: str, /, **values: Any) -> list[Row]:
        return await self._connections.run(lambda it: fetch(it, topic, name, values))

    async def _look(self, look: Callable[[Rows], Awaitable[T]]) -> T:
        async with self._connections.use(kind=Transaction.SNAPSHOT) as connection:

            async def rows(topic: str, name: str, /, **values: Any) -> list[Row]:
                return await fetch(connection, topic, name, values)

            return await look(rows)

    async def _kind_of_list(self, rows: Rows, which: JobFilter, values: dict[str, Any]) -> str:
        values["tasks"] = None
        if which.task is not None:
            values["task"] = storable(which.task, self._connections.codec)
            values["tasks"] = [values["task"]]
        elif which.queue is not None:
            (lined,) = await rows("find_jobs", "lined", queue=which.queue, probes=PROBES_MAX)
            if lined["probes"] < PROBES_MAX:
                values["tasks"] = lined["tasks"]
        most = min(QUEUED_MAX, rows_of(which))
        return "all" if await is_long(rows, values | {"rows": most}) else "queued"

    async def search(
        self, ids: Sequence[int], texts: Texts, size_max: int = LOOK_BYTES
    ) -> Searched:
        values = msgspec.structs.asdict(texts) | {"ids": list(ids), "size_max": size_max}
        (row,) = await self._rows("inspect", "search", **values)
        return Searched(**row | {"ids": msgspec.json.decode(row["ids"])})

    async def wanted(self, queue: str) -> int:
        return int((await self._rows("inspect", "wanted", queue=queue))[0]["number"])

    async def lock_holders(
        self, *, of_counters: bool = True, longer_than: float = LONG_LOCK_SECONDS
    ) -> list[LockHolder]:
        holders = statements("postgres", "limits")["lock_holders"], of_counters, longer_than
        rows = await self._connections.run(lambda it: it.fetch(*holders))
        return [LockHolder(*row) for row in rows]

    async def no_writes(self) -> NoWrites | None:
        row = await self._connections.run(lambda it: it.fetchrow(_SQL["standing"]))
        if not (row["standby"] or row["read_only"] or row["standby_wait"]):
            return None
        from outlast.store.postgres.checks import find_no_writes

        told = dict(row)
        if row["read_only"] and not row["standby"]:
            with suppress(StoreError):  # a role that only enqueues does not see workers
                told["last"] = await self._connections.run(
                    lambda it: it.fetchval(_SQL["last_beat"])
                )
        return find_no_writes(**told)

    async def environment(self) -> Environment:
        from outlast.store.postgres.checks import PostgresFacts
        from outlast.store.postgres.privileges import limited_to, privileges

        async with self._connections.use() as connection:
            greeted = connection.get_server_pid()
            before = SYSTEM.wall()
            rows = await connection.fetch(_SQL["environment"], greeted)
            read_at = (before + SYSTEM.wall()) / 2
            needed = await privileges(connection, None, Purpose.WORKER)
            lacking = [each.what for each in needed if not each.held]
            limited = await limited_to(connection) if lacking else None
            misled: dict[str, list[str]] = {}
            for each in await connection.fetch(_MISLED):
                misled.setdefault(each["kind"], []).append(each["name"])
            collation = None
            if rows[0]["version"] >= KNOWS_COLLATIONS:
                collation = await connection.fetchval(_SQL["collation"])
        url = self._connections.url
        holders: list[LockHolder] = []
        behind: list[str] = []
        lanes = 0
        with suppress(NotPermitted):  # a role that only enqueues by SQL reads nothing
            holders = await self.lock_holders()
            behind = await self._connections.run(lambda it: it.fetchval(_SQL["behind"]))
            lanes = await self._connections.run(lambda it: it.fetchval(_SQL["lanes"]))
        return PostgresFacts(
            **rows[0],
            hosts=await find_roles(url, self._connections.options),
            attributes=attributes_of(url),
            read_at=read_at,
            lacking=lacking,
            limited_to=limited,
            lock_holders=holders,
            behind=behind,
            lanes=lanes,
            misled=misled,
            collation=collation,
        )


async def fetch(connection: Any, topic: str, name: str, values: dict[str, Any]) -> list[Row]:
    numbers = {name: array_text(values[name]) for name in _NUMBERS if name in values}
    return [dict(row) for row in await fetch_rows(connection, topic, name, values | numbers)]
