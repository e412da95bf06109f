"""Many schedules are put with few statements, however many they are."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store import batches
from outlast.store.postgres.schedules import put
from outlast.store.postgres.store import PostgresStore
from outlast.store.schedules import Put
from tests.conformance.schedules_kit import schedule

MANY = 3_000


class Counting:
    """A connection that counts statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.statements = 0

    async def fetch(self, *values: Any) -> list[Any]:
        self.statements += 1
        found: list[Any] = await self._connection.fetch(*values)
        return found


async def test_many_schedules_are_put_with_one_statement(store: PostgresStore) -> None:
    new = [schedule(f"s{n}") for n in range(MANY)]
    async with store._connections.use() as connection:
        counting = Counting(connection)
        for answer in (Put.CREATED, Put.SAME):
            assert await put(counting, new) == [answer] * MANY
    assert counting.statements == 2


async def test_the_statements_of_many_schedules_are_bounded_in_size(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ENQUEUE_BYTES", 1_000)
    names = ["b" * 600, "a" * 600, "c", "d"]
    async with store._connections.use() as connection:
        counting = Counting(connection)
        assert await put(counting, [schedule(name) for name in names]) == [Put.CREATED] * 4
    assert counting.statements == 2  # a, and the others
