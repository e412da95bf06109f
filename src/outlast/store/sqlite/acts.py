"""Carries out acts of people on SQLite: a transaction as ``store/acts.py`` needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from sqlite3 import Cursor
from typing import TypeVar

from outlast.model.limits import LimitSpec
from outlast.store.acts import Acting, ActVerbs
from outlast.store.sqlite import events, jobs, limits
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.dependencies import resolve
from outlast.store.sqlite.inspector import rows_on, run_at_once
from outlast.store.sqlite.lanes import draw, draw_tokens
from outlast.store.sqlite.pruning import forget
from outlast.store.values import Enqueued, NewEvent, NewJob

T = TypeVar("T")


class SqliteActVerbs(ActVerbs):
    """The verbs of ``SqliteStore`` for acts of people."""

    _connection: SqliteConnection

    async def _in_transaction(self, work: Callable[[Acting], Awaitable[T]]) -> T:
        return await self._connection.write(lambda cursor, now: act(cursor, now, work))


def act(cursor: Cursor, now: float, work: Callable[[Acting], Awaitable[T]]) -> T:
    """Return the result of ``work`` in the transaction of a cursor."""
    return run_at_once(work(SqliteActing(cursor, now)))


class SqliteActing:
    """The transaction of a cursor."""

    def __init__(self, cursor: Cursor, now: float) -> None:
        self._cursor = cursor
        self._now = now
        self.rows = rows_on(cursor, now)

    async def draw(self, name: str, count: int) -> list[int]:
        if name == "token":
            return list(draw_tokens(self._cursor, self._now, count))
        return list(draw(self._cursor, name, count))

    async def revive(
        self, ids: Sequence[int], positions: Sequence[int], *, from_scratch: bool
    ) -> list[int]:
        values = {"ids": ids, "positions": positions, "from_scratch": from_scratch}
        return [row["id"] for row in await self.rows("actions", "requeue", **values)]

    async def free_keys(self, keys: Sequence[str]) -> None:
        jobs.free_keys(self._cursor, self._now, keys)

    async def resolve(self) -> tuple[list[int], bool]:
        return [], resolve(self._cursor, self._now)

    async def notify(self, ids: Sequence[int]) -> None:
        """Do nothing: each commit wakes the workers."""

    async def forget(self, ids: Sequence[int]) -> None:
        forget(self._cursor, ids)

    async def enqueue(self, job: NewJob) -> Enqueued:
        return jobs.enqueue(self._cursor, self._now, [job])[0]

    async def send_event(self, event: NewEvent) -> bool:
        return events.send_event(self._cursor, self._now, event)

    async def put_limit(self, name: str, declared: str | None, own: LimitSpec | None) -> None:
        limits.put_limit(self._cursor, self._now, name, declared, own)
