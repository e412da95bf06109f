"""Many lanes on PostgreSQL: what an exchange reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.store.postgres.exchange import LAG_SECONDS
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import ENQUEUE_MAX
from outlast.store.values import Claimed, ClaimRequest, NewJob
from tests.conformance.kit import Hands, ended, new_worker
from tests.manual_clock import ManualClock
from tests.postgres.entries_kit import entries_read

LANE = "outlast_jobs_lane"
QUEUES = 1_000


class Client:
    """A store with a clock of its own, a worker on it, and what it reads."""

    def __init__(self, store: PostgresStore, clock: ManualClock, hands: Hands, url: str) -> None:
        self.store, self.clock, self.hands, self.url = store, clock, hands, url

    async def add(self, *jobs: NewJob) -> list[int]:
        made: list[int] = []
        for start in range(0, len(jobs), ENQUEUE_MAX):
            made += [
                one.job_id for one in await self.store.enqueue(jobs[start : start + ENQUEUE_MAX])
            ]
        return made

    async def claim(self, limit: int, *tasks: str) -> list[Claimed]:
        request = ClaimRequest(list(tasks or "t"), limit)
        return (await self.store.exchange(self.hands.me, [], [request])).claimed

    async def take(self, limit: int, *tasks: str) -> list[Claimed]:
        """Claim, and complete at once."""
        claimed = await self.claim(limit, *tasks)
        await self.hands.hand_in(*[ended(each) for each in claimed])
        return claimed

    async def drain(self, limit: int, *tasks: str) -> list[list[Claimed]]:
        """Claim and complete until nothing is left; return what each exchange has brought."""
        trips: list[list[Claimed]] = []
        while claimed := await self.take(limit, *tasks):
            trips.append(claimed)
        return trips

    async def read(self) -> int:
        """Return how many entries of the line were read so far, dead ones too."""
        return await entries_read(self.store, LANE)


@pytest.fixture
async def client(pg_url: str) -> AsyncIterator[Client]:
    clock = ManualClock(boot=0.0)
    store = PostgresStore(pg_url, clock=clock)
    await store.open()
    me = await store.register(new_worker())
    yield Client(store, clock, Hands(store, me), pg_url)
    await store.close()


def spread(count: int, per_queue: int = 1, task: str = "t") -> list[NewJob]:
    return [NewJob(task=task, queue=f"q{n:05}") for _ in range(per_queue) for n in range(count)]


@pytest.fixture
async def holder(pg_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that is held open: all that leaves the line stays in its index."""
    connection = await asyncpg.connect(pg_url)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await connection.fetch("SELECT count(*) FROM outlast_jobs")
    yield connection
    await connection.close()


# ------------------------------------------------------------------------ what a claim reads


@pytest.mark.parametrize("tasks", [("t",), ("t", "u")])
async def test_a_job_in_one_of_many_lanes_costs_no_more_than_in_one_of_few(
    client: Client, tasks: tuple[str, ...]
) -> None:
    costs = []
    for count in (20, 250):
        await client.add(*[job for task in tasks for job in spread(count, 3_000 // count, task)])
        await client.take(50, *tasks)
        before = await client.read()
        trips = [await client.take(50, *tasks) for _ in range(10)]
        assert [len(trip) for trip in trips] == [50] * 10
        costs.append((await client.read() - before) / 500)
        await client.drain(500, *tasks)
    assert costs[1] < costs[0] + 0.7, costs


async def calls(store: PostgresStore, functions: str) -> int:
    """Return how often functions were called so far."""
    async with store._connections.use() as connection:
        if connection.get_server_version() < (15,):
            pytest.skip("a session cannot be asked for its figures")
        await connection.execute("SET track_functions = 'pl'")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        return int(
            await connection.fetchval(
                """SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions
                   WHERE funcname LIKE $1""",
                functions,
            )
        )


async def test_queues_with_several_tasks_are_read_by_one_statement(client: Client) -> None:
    await client.add(*spread(200, 2), *spread(200, 2, "u"))
    await client.take(40, "t", "u")
    before = await calls(client.store, "outlast_lock_lanes%")
    assert len(await client.take(40, "t", "u")) == 40
    assert 0 < await calls(client.store, "outlast_lock_lanes%") - before <= 2, "of ten queues"


async def test_held_jobs_of_many_queues_are_passed_over_and_hide_no_others(
    client: Client, session: asyncpg.Connection
) -> None:
    """Where two tasks of a queue have the same priority, their lanes are merged without locks."""
    jobs = [NewJob(task=task, queue=queue) for queue in "abcd" for _ in range(10) for task in "tu"]
    ids = await client.add(*jobs)
    held = [*ids[:18], *ids[20:25], *ids[40:60]]
    async with session.transaction():
        await session.fetch(
            "SELECT id FROM outlast_jobs WHERE id = ANY ($1::bigint[]) FOR UPDATE", held
        )
        taken = [each.job_id for each in await client.take(30, "t", "u")]
    assert taken == [each for each in ids if each not in held][:30]
    left = [each.job_id for trip in await client.drain(30, "t", "u") for each in trip]
    assert sorted(taken + left) == ids


async def test_dead_rows_of_lanes_without_jobs_are_walked_over_once(
    client: Client, holder: asyncpg.Connection
) -> None:
    await client.add(*spread(QUEUES, 3))
    await client.drain(300)
    before = await client.read()
    assert await client.take(9) == []
    first = await client.read() - before
    client.clock.advance(LAG_SECONDS)
    (job,) = await client.add(NewJob(task="t", queue="q00500"))
    before = await client.read()
    assert [each.job_id for each in await client.take(9)] == [job]
    assert await client.read() - before < 100 + 2 * QUEUES < first


async def test_dead_rows_before_the_jobs_of_a_claim_are_walked_over_once(
    client: Client, holder: asyncpg.Connection
) -> None:
    """Where each claim is filled, so that none reads all lanes."""
    await client.add(*[NewJob(task="t", queue=f"q{n}") for n in range(9) for _ in range(300)])
    await client.drain(500)
    fresh = PostgresStore(client.url, clock=client.clock)
    await fresh.open()
    ids = await client.add(*[NewJob(task="t", queue="z")] * 8)
    read = []
    for _ in range(3):
        before = await entries_read(fresh, LANE)
        claimed = (await fresh.exchange(client.hands.me, [], [ClaimRequest(["t"], 2)])).claimed
        assert len(claimed) == 2
        read.append(await entries_read(fresh, LANE) - before)
        client.clock.advance(LAG_SECONDS)
    await fresh.close()
    assert read[0] > 2_700
    assert read[2] < 100, read
    assert len(ids) == 8


# ----------------------------------------------------------------------------------- sweeps


async def test_a_sweep_over_many_queues_announces_a_bounded_number_and_some_of_each(
    client: Client,
) -> None:
    await client.add(*spread(150, 80))
    found = await client.store.waiting(0.0, 100)
    assert {*Counter(each.queue for each in found.jobs).values()} == {10_000 // 150}
    assert len({each.queue for each in found.jobs}) == 150
