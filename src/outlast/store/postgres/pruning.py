"""Deletes what ended long ago, a batch at a time, and remembers where it stopped."""

from __future__ import annotations

from math import inf
from typing import Any

from outlast.store.actions import ACTIONS_SECONDS
from outlast.store.limits import IDLE_SECONDS
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.session import Transaction
from outlast.store.schedules import UNDECLARED_SECONDS
from outlast.store.statements import statements

_PRUNE = statements("postgres", "prune")
_SESSION = statements("postgres", "session")

_FROM_THE_OLDEST = (-inf, -inf, -inf)


class Pruning:
    """The batches of one store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._reached = _FROM_THE_OLDEST  # where each search has stopped, in seconds since 1970

    async def prune(
        self,
        jobs: float,
        workers: float,
        dead: float | None,
        events: float,
        limit: int,
        *,
        onward: bool,
    ) -> int:
        """Delete jobs, workers and, unless None, dead jobs that ended that many seconds ago, and
        old events, at most ``limit``; return how many were deleted. ``onward``: from where the last
        batch stopped.
        """
        after = self._reached if onward else _FROM_THE_OLDEST

        async def work(connection: Any) -> tuple[int, Any]:
            await connection.execute(_SESSION["by_index"])
            found = await connection.fetchrow(_PRUNE["jobs"], limit, jobs, dead, *after)
            spans = (UNDECLARED_SECONDS, ACTIONS_SECONDS, IDLE_SECONDS)
            left = limit - found["gone"]
            gone = await connection.fetchval(_PRUNE["workers"], workers, left, *spans)
            sent = await connection.fetch(_PRUNE["events"], events, left)
            return found["gone"] + gone + len(sent), found

        gone, found = await self._connections.run(work, kind=Transaction.COMMITTED)
        self._reached = (found["old"], found["kept"], found["dead"])
        return gone
