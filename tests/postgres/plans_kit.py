"""A store that reports the plans of the very statements that ran.

``auto_explain`` reports each one, also those inside functions, to the session that ran it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Claimed, ClaimRequest, WorkerRef

WIDE = 1_000  # a scan that reads more rows than this does not count as by index


class Session:
    """A store whose one connection reports its plans, and a worker on it."""

    def __init__(self, store: PostgresStore, connection: Any) -> None:
        self.store = store
        self.plans: list[dict[str, Any]] = []
        connection.add_log_listener(self._heard)

    def _heard(self, _connection: Any, message: Any) -> None:
        if "plan:\n" in message.message:
            self.plans.append(json.loads(message.message.split("plan:\n", 1)[1]))

    async def claim(self, me: WorkerRef, limit: int) -> list[Claimed]:
        return (await self.store.exchange(me, [], [ClaimRequest(["t"], limit)])).claimed

    async def run(self, *statements: str) -> None:
        """Run statements on the connection of the store."""
        async with self.store._connections.use() as connection:
            for statement in statements:
                await connection.execute(statement)

    async def forget(self) -> None:
        """Forget the plans of all statements so far."""
        await self.settled()
        self.plans.clear()

    async def settled(self) -> list[dict[str, Any]]:
        """Return all scans so far, once the server's reports have arrived."""
        await self.store.observe()
        return [node for plan in self.plans for node in nodes(plan["Plan"])]


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Session]:
    store = PostgresStore(url)
    async with store._connections.use() as connection:
        await connection.execute(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;"
            "SET auto_explain.log_nested_statements = on; SET auto_explain.log_level = notice;"
            "SET auto_explain.log_format = json; SET auto_explain.log_analyze = on;"
            "SET auto_explain.log_buffers = on; SET auto_explain.log_timing = off"
        )
        found = Session(store, connection)
    try:
        yield found
    finally:
        await store.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def by_index(scans: list[dict[str, Any]], most: int = WIDE) -> set[str]:
    """Assert that no scan reads a large table as a whole; return the indexes that were used."""
    assert scans
    for node in scans:
        table = node.get("Relation Name")
        if table in {"outlast_jobs", "outlast_attempts"}:
            assert node["Node Type"] != "Seq Scan", json.dumps(node)
        rows = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
        assert rows <= (most if str(table).startswith("outlast") else WIDE), json.dumps(
            node, indent=1
        )
    return {node["Index Name"] for node in scans if "Index Name" in node}
