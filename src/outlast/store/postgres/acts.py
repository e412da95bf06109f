"""Carries out acts of people on PostgreSQL: a transaction as ``store/acts.py`` needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from outlast.model.limits import LimitSpec
from outlast.store.acts import Acting, ActVerbs
from outlast.store.dependencies import RESOLVE_MAX
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.enqueue import enqueue
from outlast.store.postgres.errors import is_key_taken
from outlast.store.postgres.inspector import fetch
from outlast.store.postgres.limits import put_limit
from outlast.store.postgres.pool import Verbs
from outlast.store.statements import Row, statements
from outlast.store.values import Enqueued, NewEvent, NewJob

T = TypeVar("T")
_SQL = statements("postgres", "actions")
_EVENTS = statements("postgres", "events")
_KEYS = statements("postgres", "enqueue")


class PostgresActVerbs(Verbs, ActVerbs):
    """The verbs of ``PostgresStore`` for acts of people."""

    async def _in_transaction(self, work: Callable[[Acting], Awaitable[T]]) -> T:
        async def act(connection: Any, notify: bool) -> T:  # noqa: FBT001
            await connection.execute(_SQL["by_index"])
            return await work(PostgresActing(connection, notify=notify))

        return await self._connections.run_notifying(act, kind=Transaction.COMMITTED)


class PostgresActing:
    """The transaction of a connection."""

    def __init__(self, connection: Any, *, notify: bool) -> None:
        self._connection = connection
        self._notify = notify

    async def rows(self, topic: str, name: str, /, **values: Any) -> list[Row]:
        return await fetch(self._connection, topic, name, values | {"notify": self._notify})

    async def draw(self, name: str, count: int) -> list[int]:
        rows = await self.rows("actions", "draw", name=name, count=count)
        return [row["number"] for row in rows]

    async def revive(
        self, ids: Sequence[int], positions: Sequence[int], *, from_scratch: bool
    ) -> list[int]:
        """Sees a key that was not committed at the first look at the second one."""
        values = {"ids": ids, "positions": positions, "from_scratch": from_scratch}
        await self._connection.execute("SAVEPOINT revive")
        for left in reversed(range(len(ids) + 1)):
            try:
                return [row["id"] for row in await self.rows("actions", "requeue", **values)]
            except Exception as error:
                if not (left and is_key_taken(error)):
                    raise
            await self._connection.execute("ROLLBACK TO SAVEPOINT revive")
        return []

    async def free_keys(self, keys: Sequence[str]) -> None:
        await self._connection.fetch(_KEYS["free_keys"], keys)

    async def resolve(self) -> tuple[list[int], bool]:
        (row,) = await self.rows("actions", "resolve", most=RESOLVE_MAX)
        return msgspec.json.decode(row["ids"] or "[]"), bool(row["more"])

    async def notify(self, ids: Sequence[int]) -> None:
        """Name their lanes as well, since a claim reads no others."""
        await self.rows("actions", "line_up", ids=ids)
        if self._notify:
            await self.rows("actions", "notify", ids=ids)

    async def forget(self, ids: Sequence[int]) -> None:
        await self.rows("actions", "forget", ids=ids)

    async def enqueue(self, job: NewJob) -> Enqueued:
        return (await enqueue(self._connection, [job], notify=self._notify))[0]

    async def send_event(self, event: NewEvent) -> bool:
        return await send(self._connection, event, notify=self._notify)

    async def put_limit(self, name: str, declared: str | None, own: LimitSpec | None) -> None:
        await put_limit(self._connection, name, declared, own)


async def send(connection: Any, event: NewEvent, *, notify: bool = True) -> bool:
    rows = await connection.fetch(_EVENTS["send"], event.name, event.value, notify)
    return bool(rows[0]["kept"])
