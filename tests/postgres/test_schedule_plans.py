"""Among 100,000 schedules the look, and what fires, find theirs by index."""

from __future__ import annotations

import pytest

from outlast.store.postgres.store import PostgresStore
from tests.conformance.schedules_kit import firing, schedule
from tests.postgres.plans_kit import by_index, session

MANY = """
INSERT INTO outlast_schedules
    (name, call, spec, overlap, catch_up, grace, origin, version, revision, since, next_tick)
SELECT s.name || n, s.call, s.spec, s.overlap, s.catch_up, s.grace, s.origin, s.version, s.revision,
       s.since, s.next_tick + 1000
FROM outlast_schedules s CROSS JOIN generate_series(1, 100000) n"""
DUE = 10


@pytest.mark.slow
@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_hundred_thousand_schedules_are_read_by_index(
    pg_url: str, *, analyzed: bool
) -> None:
    store = PostgresStore(pg_url)
    await store.open()
    await store.put_schedules([schedule("idle")])
    async with store._connections.use() as connection:
        await connection.execute(MANY)
        if analyzed:
            await connection.execute("ANALYZE")
    await store.delete_schedule("idle")
    await store.put_schedules([schedule(f"due{n}") for n in range(DUE)])
    async with session(pg_url) as s:
        await s.store.observe()
        look = await s.store.due_schedules()
        assert len(look.schedules) == DUE
        answers = await s.store.fire([firing(each, each.since) for each in look.schedules])
        assert all(answer.won for answer in answers)
        assert (await s.store.due_schedules()).schedules == []
        await s.store.note_undeclared(["idle1", "idle2"])
        used = by_index(await s.settled(), most=200)
    assert {"outlast_schedules_next", "outlast_schedules_pkey"} <= used
    await store.close()
