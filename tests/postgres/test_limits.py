"""Limits on PostgreSQL under real concurrent sessions: the laws hold at every moment."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from outlast.base.clock import SYSTEM
from outlast.store.limits import Hold, SetLimit
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import Hands, ended, enqueued
from tests.conformance.limits_kit import declare, limited, need, permit
from tests.postgres.limits_kit import Fleet, broken_laws, drained, watched

SECONDS = 4.0


async def _enqueue(store: PostgresStore, dice: random.Random, count: int) -> None:
    """Jobs of few streams that share permits, some of them with a rate."""
    kinds = [
        [need("all"), need("key", f"k{n}")] if n % 3 else [need("key", f"k{n}")] for n in range(12)
    ] + [[need("all"), need("rate")], []]
    jobs = []
    for _ in range(count):
        needs = dice.choice(kinds)
        tenant = None if needs else f"t{dice.randint(1, 3)}"
        jobs.append(limited(*needs, fair=tenant, tenant=tenant, priority=dice.choice([0, 0, 5])))
    await enqueued(store, *jobs)


async def _declare(store: PostgresStore) -> None:
    await declare(store, "all", running=9)
    await declare(store, "key", running=2, per="limit_key")
    await declare(store, "rate", spacing=0.005, burst=5.0)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("trouble", ["none", "changes", "kills"])
async def test_the_laws_hold_while_sessions_race(
    store: PostgresStore, session: Any, watcher: Any, trouble: str, seed: int
) -> None:
    dice = random.Random(seed)
    await _declare(store)
    await _enqueue(store, dice, 400)
    fleet = Fleet(store, seed)
    seen: list[dict[str, Any]] = []
    until = SYSTEM.boot() + SECONDS
    tasks = [asyncio.create_task(fleet.work(f"w{n}")) for n in range(4)]
    watching = asyncio.create_task(watched(watcher, lambda: fleet.stopped, seen))
    while SYSTEM.boot() < until:
        await _enqueue(store, dice, dice.randint(1, 30))
        if trouble == "changes":
            name, most = dice.choice([("all", 12), ("key", 3)])
            await store.set_limit(SetLimit(name=name, running=dice.randint(1, most)))
            await store.hold_limit(Hold("key", f"k{dice.randint(0, 11)}", dice.choice([0.0, 0.05])))
        if trouble == "kills":
            await session.execute(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'fleet-%'"
                " ORDER BY random() LIMIT 1) one"
            )
        await asyncio.sleep(dice.random() * 0.1)
    fleet.stopped = True
    await asyncio.gather(*tasks, watching)
    if trouble == "changes":
        seen = [{law: each[law] for law in each if law != "L2"} for each in seen]
        for name in ("all", "key"):
            await store.set_limit(SetLimit(name=name, reset=True))
    assert [each for each in seen if each] == []
    assert fleet.ended > 100
    assert (fleet.broken > 0) == (trouble == "kills"), fleet.errors
    await drained(store, session)
    await drained_notices(store, session)
    assert await broken_laws(session) == {}
    assert await session.fetchval("SELECT sum(used) FROM outlast_permits") == 0


async def drained_notices(store: PostgresStore, session: Any) -> None:
    """Fold what the last ends have left."""
    hands = await Hands.on(store, "folds")
    while await session.fetchval("SELECT count(*) FROM outlast_notices"):
        await hands.claim(1)
