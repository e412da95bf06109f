"""Defines the verbs of a ``PostgresStore`` about limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from outlast.errors import BadData
from outlast.model.limits import LimitSpec, spec_of
from outlast.store.columns import struct_of
from outlast.store.limits import RECOUNT_SECONDS, DeclaredTask, Miscounted, NewLimit, in_force
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.inspector import fetch
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.statements import arrays_of, storable, to_json
from outlast.store.protocol import REFUSALS_KEPT
from outlast.store.statements import statements
from outlast.store.values import Answer

_SQL = statements("postgres", "limits")


class PostgresLimitVerbs:
    """The verbs of ``PostgresStore`` about limits."""

    _connections: Connections

    async def declare_limits(
        self, limits: Sequence[NewLimit], tasks: Sequence[DeclaredTask] = ()
    ) -> bool:
        codec = self._connections.codec
        specs = {storable(limit.name, codec): limit.spec for limit in limits}
        if limits and not await self._declare_limits(specs):
            return False
        if tasks:
            await self._declare_tasks([_task_row(task, codec) for task in tasks])
        return True

    async def _declare_tasks(self, tasks: Sequence[tuple[Any, ...]]) -> None:
        names = [name for name, *_ in tasks]
        rows = await self._connections.run(lambda it: it.fetch(_SQL["known_tasks"], names))
        known = {tuple(row.values()) for row in rows}
        if news := [row for row in tasks if row not in known]:
            columns = arrays_of(news, (0, 1))
            await self._connections.run(
                lambda it: it.fetch(_SQL["declare_tasks"], *columns), kind=Transaction.COMMITTED
            )

    async def _declare_limits(self, specs: Mapping[str, LimitSpec]) -> bool:
        if not await self._connections.run(partial(_read_news, specs=specs)):
            return True
        declare = partial(_declare, specs=specs)
        return await self._connections.run(declare, kind=Transaction.COMMITTED)

    async def recount_limits(self, settled: float = RECOUNT_SECONDS) -> list[Miscounted]:
        rows = await self._connections.run(
            lambda it: it.fetch(_SQL["recount"], settled), kind=Transaction.COMMITTED
        )
        return [struct_of(Miscounted, row) for row in rows]

    async def spend(self, job_id: int, token: int, name: str, cost: float) -> Answer:
        async def work(connection: Any) -> Answer:
            rows = await connection.fetch(_SQL["spend"], job_id, token, name, cost)
            if rows and rows[0]["permit"] is None:
                raise BadData(f"job {job_id} was enqueued without limits=[{name}]")
            if rows:
                return Answer.ACCEPTED
            (row,) = await connection.fetch(_SQL["judge"], job_id, token, REFUSALS_KEPT)
            return Answer(row["answer"])

        return await self._connections.run(work)


def _task_row(task: DeclaredTask, codec: str) -> tuple[Any, ...]:
    limits = to_json([storable(name, codec) for name in task.limits])
    return storable(task.name, codec), limits, task.fair, task.aging, task.priority


async def _declare(connection: Any, specs: Mapping[str, LimitSpec]) -> bool:
    """Declare limits; return whether the keeper lock was free in time. They are read under it,
    with the values that a person or another worker has written meanwhile."""
    (row,) = await connection.fetch(_SQL["lock_in_time"])
    if row["is_mine"]:
        await _put(connection, await _read_news(connection, specs))
    return bool(row["is_mine"])


async def _read_news(connection: Any, specs: Mapping[str, LimitSpec]) -> list[tuple[Any, ...]]:
    rows = await fetch(connection, "limits", "known", {"names": list(specs)})
    known = {row["name"]: (spec_of(row["declared"]), row["own"]) for row in rows}
    return [
        (name, to_json(spec), own, *_columns(spec, spec_of(own)))
        for name, spec in sorted(specs.items(), key=itemgetter(0))
        for declared, own in [known.get(name, (None, None))]
        if declared != spec
    ]


async def _put(connection: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        await connection.fetch(_SQL["put"], *arrays_of(rows, (0, 1, 2, 6)))


async def put_limit(
    connection: Any, name: str, declared: str | None, own: LimitSpec | None
) -> None:
    """Needs a transaction that has the keeper lock."""
    text = None if own is None else to_json(own)
    await _put(connection, [(name, declared, text, *_columns(spec_of(declared), own))])


def _columns(declared: LimitSpec | None, own: LimitSpec | None) -> tuple[Any, ...]:
    spec = in_force(declared, own)
    per = None if spec.per is None else str(spec.per)
    return spec.running, spec.spacing, spec.burst, per
