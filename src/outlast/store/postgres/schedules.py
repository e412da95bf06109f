"""Defines the verbs of a ``PostgresStore`` about schedules."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from outlast.store.batches import split
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.enqueue import find_holders, store_unless_taken
from outlast.store.postgres.errors import LockHeld
from outlast.store.postgres.pool import Verbs
from outlast.store.postgres.statements import array_text, arrays_of
from outlast.store.schedules import (
    AHEAD_SECONDS,
    DECLARED_SECONDS,
    DUE_MAX,
    FIRST_PAGE,
    OWED_MAX,
    RENEW_SECONDS,
    VERSION_LENGTH,
    VERSIONS_KEPT,
    DueSchedule,
    DueSchedules,
    FireAnswer,
    Firing,
    NewSchedule,
    Origin,
    Put,
    columns_of,
    fired_columns,
)
from outlast.store.statements import statements

_SQL = statements("postgres", "schedules")

_DUE = DueSchedule.__struct_fields__


class PostgresScheduleVerbs(Verbs):
    """The verbs of ``PostgresStore`` about schedules."""

    async def put_schedules(
        self, schedules: Sequence[NewSchedule], origin: Origin = Origin.RUN_TIME
    ) -> list[Put]:
        return await self._connections.run(
            lambda connection: put(connection, schedules, origin), kind=Transaction.COMMITTED
        )

    async def due_schedules(
        self, limit: int = DUE_MAX, after: tuple[float, str] = FIRST_PAGE
    ) -> DueSchedules:
        rows = await self._fetch(_SQL["due"], limit, *after)
        return DueSchedules(
            now=rows[0]["now"],
            next_tick=rows[0]["first_after"],
            schedules=[
                DueSchedule(**{name: row[name] for name in _DUE})
                for row in rows
                if row["name"] is not None
            ],
        )

    async def fire(self, firings: Sequence[Firing]) -> list[FireAnswer]:
        """Fires in halves if another transaction holds the key of a job."""
        try:
            return await self._connections.run_notifying(
                lambda it, notify: _fire(it, firings, notify=notify),
                kind=Transaction.COMMITTED,
            )
        except LockHeld:
            if len(firings) == 1:
                return [FireAnswer(won=False)]
        middle = len(firings) // 2
        return [*await self.fire(firings[:middle]), *await self.fire(firings[middle:])]

    async def note_undeclared(self, names: Sequence[str]) -> int:
        return len(await self._fetch(_SQL["undeclared"], list(names), DECLARED_SECONDS))


async def put(
    connection: Any, schedules: Sequence[NewSchedule], origin: Origin = Origin.RUN_TIME
) -> list[Put]:
    """Put in the order of the names, so that two callers wait in the same order."""
    rows = sorted((tuple(columns_of(each).values()) for each in schedules), key=itemgetter(0))
    answers: dict[str, str] = {}
    for part in split(rows, _weigh):
        found = await connection.fetch(
            _SQL["put"],
            *arrays_of(part, (0, 1, 2, 3, 4, 6)),
            origin.value,
            RENEW_SECONDS,
            DECLARED_SECONDS,
            AHEAD_SECONDS,
            VERSIONS_KEPT * (VERSION_LENGTH + 1),
            OWED_MAX,
        )
        answers |= {row["name"]: row["answer"] for row in found}
    return [Put(answers[each.name]) for each in schedules]


def _weigh(columns: tuple[Any, ...]) -> tuple[int, int]:
    name, call, spec, *_ = columns
    return 1, len(name) + len(call) + len(spec)


async def _fire(connection: Any, firings: Sequence[Firing], *, notify: bool) -> list[FireAnswer]:
    rows = await connection.fetch(
        _SQL["fire"],
        [each.name for each in firings],
        array_text(each.next_tick for each in firings),
        array_text(each.revision for each in firings),
    )
    won = {firings[row["place"] - 1].name: firings[row["place"] - 1] for row in rows}
    if not won:
        return [FireAnswer(won=False) for _ in firings]
    jobs = [job for firing in won.values() for job in firing.jobs]
    stored = iter(await store_unless_taken(connection, jobs, notify=notify))
    ids = {name: [next(stored) for _ in firing.jobs] for name, firing in won.items()}
    taken = {name for name, each in ids.items() if None in each}
    keys = {name: won[name].jobs[ids[name].index(None)].key for name in taken}
    holders = await find_holders(connection, [key for key in keys.values() if key is not None])
    answers = {
        name: FireAnswer(won=True, jobs=each, in_the_way=holders.get(keys.get(name)))
        for name, each in ids.items()
    }
    rows = [fired_columns(won[name], answer).values() for name, answer in answers.items()]
    await connection.fetch(_SQL["fired"], *arrays_of(rows, (0, 10)))
    return [answers.get(each.name, FireAnswer(won=False)) for each in firings]
