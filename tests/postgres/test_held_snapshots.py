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

from outlast.model.job import Policy
from outlast.model.limits import stream_id
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Claimed, ClaimRequest, NewJob, OnKey
from tests.conformance.kit import TASK, Hands, ended, enqueued, job, new_worker, on
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


@pytest.mark.parametrize(("kind", "most"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
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


async def floor_of(session: Any) -> int:
    (floor,) = await session.fetch("SELECT floor FROM outlast_streams")
    return int(floor[0])


async def test_a_job_that_is_committed_below_the_floor_of_its_stream_is_the_next(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """Its notice takes the floor back."""
    late = session.transaction()
    await late.start()
    (late_one,) = await on(session).enqueue([limited(fair="a")])
    await enqueued(store, limited(fair="a"), limited(fair="a"))
    held = await hands.claim_one()
    await late.commit()
    assert await floor_of(session) > await session.fetchval(
        "SELECT min(position) FROM outlast_jobs"
    )
    assert (await hands.claim_one()).job_id == late_one.job_id
    await hands.hand_in(ended(held))


def aging(worth: float, **own: Any) -> NewJob:
    stream = stream_id(TASK, "default", None, (), "a")
    return NewJob(task=TASK, tenant="a", stream=stream, needs="[]", aged_by=worth, **own)


async def test_a_job_that_is_put_before_the_floor_of_its_stream_is_the_next(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """It is worth more than those before it. So is one that is replaced."""
    replaced = {"key": "k", "policy": Policy(yields_key=True)}
    ids = await enqueued(store, aging(10), aging(10), aging(0, **replaced))
    assert (await hands.claim_one()).job_id == ids[0]
    floors = [await floor_of(session)]
    (dear,) = await enqueued(store, aging(100))
    assert (await hands.claim_one()).job_id == dear
    floors.append(await floor_of(session))
    await enqueued(store, aging(200, **replaced, on_key=OnKey(replaces=True)))
    assert (await hands.claim_one()).job_id == ids[2]
    floors.append(await floor_of(session))
    assert floors == sorted(floors, reverse=True)


@pytest.mark.parametrize("is_limited", [False, True])
async def test_tenants_take_turns_where_not_all_of_them_can_start(
    store: PostgresStore, hands: Hands, is_limited: bool
) -> None:
    """Only where all start, or no other waits, do their rows stay as they are."""
    await declare(store, running=1)
    needs = [need("a")] if is_limited else []
    for tenant in "abc":
        await enqueued(store, *[limited(*needs, fair=tenant, tenant=tenant)] * 5)
    seen = ""
    for _ in range(15):
        (one,) = await hands.claim(4 if is_limited else 1)
        seen += str(one.tenant)
        await hands.hand_in(ended(one))
    assert seen == "abc" * 5


async def test_what_an_exchange_has_room_but_no_places_for_is_open_to_the_next(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """Its permit leaves no notice, which all workers would go round for."""
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"), fair=tenant) for tenant in "abc"])
    assert len(await hands.claim(3)) == 1
    await declare(store, running=9)
    await hands.claim_one()
    assert (await store.peek(hands.me)).next_due is None
    assert await session.fetchval("SELECT max(blocked) FROM outlast_streams") is None
    await hands.claim_one()
