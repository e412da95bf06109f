"""Deletes what ended long ago, a batch at a time, and remembers where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from outlast.store.actions import ACTIONS_SECONDS
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.session import Transaction
from outlast.store.schedules import UNDECLARED_SECONDS
from outlast.store.statements import statements

_PRUNE = statements("postgres", "prune")
_SESSION = statements("postgres", "session")

Reached = Mapping[str, float]  # statement -> where it stopped, in seconds since 1970


class Pruning:
    """The batches of one store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._reached: Reached = {}

    async def prune(
        self, jobs: float, workers: float, dead: float | None, limit: int, *, onward: bool
    ) -> int:
        """Delete jobs, workers and, unless None, dead jobs that ended that long ago, in seconds,
        ``limit`` at most; return how many went. ``onward``: from where the last batch stopped."""
        after = self._reached if onward else {}

        async def work(connection: Any) -> tuple[int, Reached]:
            await connection.execute(_SESSION["by_index"])
            batch = _Batch(connection, after, limit)
            await batch.delete("jobs", jobs)
            await batch.delete("kept")
            if dead is not None:
                await batch.delete("dead", dead)
            spans = (UNDECLARED_SECONDS, ACTIONS_SECONDS)
            gone = await connection.fetchval(_PRUNE["workers"], workers, batch.left, *spans)
            return limit - batch.left + gone, batch.reached

        gone, self._reached = await self._connections.run(work, kind=Transaction.COMMITTED)
        return gone


class _Batch:
    """What one transaction deletes. ``left``: how many rows more it may."""

    def __init__(self, connection: Any, after: Reached, limit: int) -> None:
        self._connection = connection
        self._after = after
        self.left = limit
        self.reached = dict(after)

    async def delete(self, statement: str, *values: float) -> None:
        """Run one of the statements, from where it stopped."""
        after = self._after.get(statement, -inf)
        row = await self._connection.fetchrow(_PRUNE[statement], self.left, after, *values)
        self.left -= row["gone"]
        if row["reached"] is not None:
            self.reached[statement] = row["reached"]
