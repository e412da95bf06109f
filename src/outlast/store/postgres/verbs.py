"""What the verbs of a ``PostgresStore`` share: its connections, and whether they notify."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from outlast.store.postgres.pool import Connections
from outlast.store.postgres.session import Transaction

R = TypeVar("R")


class Verbs:
    """Runs statements on the connections of a store; ``notify``: whether listeners are woken."""

    def __init__(self, connections: Connections, *, notify: bool) -> None:
        self._connections = connections
        self.notify = notify

    async def _fetch(
        self, statement: str, *values: Any, own: bool = False, keeps_plans: bool = False
    ) -> list[Any]:
        rows: list[Any] = await self._connections.run(
            lambda it: it.fetch(statement, *values), own=own, keeps_plans=keeps_plans
        )
        return rows

    async def _notifying(
        self,
        work: Callable[[Any, bool], Awaitable[R]],
        *,
        keeps_plans: bool = False,
        own: bool = False,
        kind: Transaction | None = None,
    ) -> R:
        """Return the result of ``work(connection, notify)``."""
        return await self._connections.run_notifying(
            lambda it, may_notify: work(it, self.notify and may_notify),
            keeps_plans=keeps_plans,
            own=own,
            kind=kind,
        )
