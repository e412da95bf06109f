"""Behind a transaction that is held open, no trip costs more than the trips before it.

The versions of rows that each trip writes stay, with their index entries. The blocks that a trip
reads show whether it walks over them, on each server and at any load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from statistics import median
from typing import Any

import asyncpg
import pytest

from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Claimed, ClaimRequest, NewJob
from tests.conformance.kit import TASK, ended, job, new_worker
from tests.conformance.limits_kit import declare, limited, need
from tests.postgres.plans_kit import Session
from tests.postgres.plans_kit import session as explained

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outlast_jobs"
TRIPS = 200
LOOKS = 5
PLACES = 20


async def of_no_limit(_: PostgresStore) -> Callable[[int], NewJob]:
    return lambda _: job()


async def of_a_limit(store: PostgresStore) -> Callable[[int], NewJob]:
    await declare(store, running=PLACES)
    return lambda _: limited(need("a"))


async def of_a_rate(store: PostgresStore) -> Callable[[int], NewJob]:
    await declare(store, spacing=1e-4, burst=float(PLACES))
    return lambda _: limited(need("a"))


async def of_limits_by_key(store: PostgresStore) -> Callable[[int], NewJob]:
    await declare(store, running=2, per="limit_key")
    return lambda n: limited(need("a", str(n % 10)))


async def of_tenants(_: PostgresStore) -> Callable[[int], NewJob]:
    return lambda n: limited(fair=str(n % 10))


async def of_more_tenants_than_places(_: PostgresStore) -> Callable[[int], NewJob]:
    return lambda n: limited(fair=str(n % (3 * PLACES)))


async def of_tenants_under_a_limit(store: PostgresStore) -> Callable[[int], NewJob]:
    await declare(store, running=PLACES // 2)
    return lambda n: limited(need("a"), fair=str(n % PLACES))


async def blocks(s: Session, call: Callable[[], Awaitable[object]]) -> int:
    """Return how many blocks the largest statement of a call reads, with those inside it."""
    await s.run("SET auto_explain.log_min_duration = 0")
    await s.forget()
    await call()
    await s.settled()
    await s.run("SET auto_explain.log_min_duration = -1")
    reads = ("Shared Hit Blocks", "Shared Read Blocks")
    return max(sum(plan["Plan"][each] for each in reads) for plan in s.plans)


ONE_WALK = 2.5
"""By how much the blocks may grow where more streams want than there are places: one scan in the
order of turns still meets the version that each turn has left."""
KINDS: list[tuple[Any, float]] = [
    (of_no_limit, 1.5),
    (of_a_limit, 1.5),
    (of_a_rate, 1.5),
    (of_limits_by_key, 1.5),
    (of_tenants, 1.5),
    (of_more_tenants_than_places, ONE_WALK),
    (of_tenants_under_a_limit, ONE_WALK),
]


@pytest.fixture(
    params=["pg_server", pytest.param("debian_server", marks=pytest.mark.debian_postgres)]
)
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database of the wheel's PostgreSQL, and of Debian's."""
    server = request.getfixturevalue(request.param)
    yield server.create_database("held")
    server.drop_database("held")


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        pytest.param(*each, id=each[0].__name__, marks=pytest.mark.xfail(strict=True) if n else ())
        for n, each in enumerate(KINDS)
    ],
)
async def test_a_trip_reads_no_more_blocks_than_the_first_ones(
    server_url: str,
    kind: Callable[[PostgresStore], Awaitable[Callable[[int], NewJob]]],
    most: float,
) -> None:
    async with explained(server_url) as s:
        await s.store.open()
        await s.run("SET auto_explain.log_min_duration = -1")
        make = await kind(s.store)
        for at in range(0, (TRIPS + 2) * PLACES, 500):
            await s.store.enqueue([make(n) for n in range(at, at + 500)])
        me = await s.store.register(new_worker(tasks=[TASK]))
        holder = await asyncpg.connect(server_url)
        await holder.execute(SNAPSHOT)
        running: list[Claimed] = []

        async def trip() -> None:
            nonlocal running
            ends = [ended(each) for each in running]
            reply = await s.store.exchange(me, ends, [ClaimRequest([TASK], PLACES)])
            running = reply.claimed
            assert running

        read = []
        for n in range(TRIPS):
            if LOOKS <= n < 2 * LOOKS or n >= TRIPS - LOOKS:
                read.append(await blocks(s, trip))
            else:
                await trip()
        await holder.close()
        assert median(read[LOOKS:]) < most * median(read[:LOOKS]), read
