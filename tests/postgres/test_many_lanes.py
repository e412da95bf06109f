"""Thousands of lanes on PostgreSQL: what an exchange reads and carries, and where it searches."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import msgspec
import pytest

from outlast.errors import StoreUnavailable
from outlast.store.postgres import exchange
from outlast.store.postgres.exchange import (
    FULL_SECONDS,
    FULL_SECONDS_MAX,
    FULL_SHARE,
    NEWS_MAX,
    SLOW_ENTRIES,
    AskedClaim,
    LaneSearch,
    Search,
)
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import ENQUEUE_MAX
from outlast.store.values import Claimed, ClaimRequest, NewJob
from tests.conformance.kit import Hands, ended, new_worker
from tests.manual_clock import ManualClock
from tests.postgres.entries_kit import entries_read

LANE = "outlast_jobs_lane"
QUEUES = 1_000


class Client:
    """A store with a clock of its own, a worker on it, and what it sends and reads."""

    def __init__(self, store: PostgresStore, clock: ManualClock, hands: Hands, url: str) -> None:
        self.store, self.clock, self.hands, self.url = store, clock, hands, url
        self.sent: list[int] = []  # characters of the arguments of each exchange

    async def add(self, *jobs: NewJob) -> list[int]:
        made: list[int] = []
        for start in range(0, len(jobs), ENQUEUE_MAX):
            made += [
                one.job_id for one in await self.store.enqueue(jobs[start : start + ENQUEUE_MAX])
            ]
        return made

    async def claim(self, limit: int, *tasks: str, news: tuple[str, ...] = ()) -> list[Claimed]:
        request = ClaimRequest(list(tasks or "t"), limit, news=news)
        return (await self.store.exchange(self.hands.me, [], [request])).claimed

    async def take(self, limit: int, *tasks: str, news: tuple[str, ...] = ()) -> list[Claimed]:
        """Claim, and complete at once."""
        claimed = await self.claim(limit, *tasks, news=news)
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
async def client(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    clock = ManualClock(boot=0.0)
    store = PostgresStore(pg_url, clock=clock)
    await store.open()
    me = await store.register(new_worker())
    client = Client(store, clock, Hands(store, me), pg_url)
    send = store._send

    async def spied(values: Callable[[bool], tuple[Any, ...]]) -> Any:
        client.sent.append(sum(len(value) for value in values(True) if isinstance(value, str)))
        return await send(values)

    monkeypatch.setattr(store, "_send", spied)
    yield client
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


# ------------------------------------------------------------------- what an exchange carries


async def test_an_exchange_carries_as_much_for_many_lanes_as_for_a_few(client: Client) -> None:
    for count in (50, QUEUES):
        await client.add(*spread(count, 2))
        await client.drain(20)
        client.sent.clear()
        await client.add(*spread(count, 2))
        await client.drain(20)
        if count == 50:
            few = max(client.sent)
    assert sum(client.sent) / len(client.sent) < few


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


async def test_a_claim_is_filled_where_lanes_are_shorter_than_the_last_ones(client: Client) -> None:
    await client.add(*[NewJob(task="t", queue="long")] * 100)
    assert len(await client.take(100)) == 100
    await client.add(*spread(150))
    before = await calls(client.store, "outlast_find_lanes%")
    assert len(await client.take(100)) == 100
    assert 0 < await calls(client.store, "outlast_find_lanes%") - before <= 6


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


# --------------------------------------------------------------- a search that walks over much


async def test_a_search_that_is_slow_comes_less_often_and_news_are_read_meanwhile(
    client: Client, holder: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.add(*spread(QUEUES, 3))
    await client.drain(300)
    before = await client.read()
    monkeypatch.setattr(exchange, "SLOW_ENTRIES", 0)  # as any walk
    assert await client.take(9) == []
    walk = await client.read() - before
    assert walk > QUEUES * 2, "all that is dead in lanes that are not known"
    (job,) = await client.add(NewJob(task="t", queue="q00500"))
    before = await client.read()
    assert [each.job_id for each in await client.take(9, news=("q00500", "other"))] == [job]
    assert await client.take(9) == []
    assert await client.read() - before < 500
    (other,) = await client.add(NewJob(task="t", queue="q00700"))
    assert await client.take(9) == [], "no wake-up has named it"
    client.clock.advance(FULL_SECONDS_MAX)
    assert [each.job_id for each in await client.take(9)] == [other]


async def test_what_was_named_is_remembered_until_there_was_a_place_for_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.add(NewJob(task="t", queue="a"))
    await client.drain(9)
    monkeypatch.setattr(exchange, "SLOW_ENTRIES", 0)
    assert await client.take(9) == []
    old = await client.add(*[NewJob(task="t", queue="a") for _ in range(20)])
    (new,) = await client.add(NewJob(task="t", queue="z"))
    taken = await client.take(10, news=("z",))
    while claimed := await client.take(10):
        taken += claimed
    assert sorted(each.job_id for each in taken) == [*old, new]


async def test_an_exchange_that_does_not_search_says_when_the_next_one_does(
    client: Client,
) -> None:
    await client.add(NewJob(task="t", queue="a"))
    await client.drain(9)
    request = ClaimRequest(["t"], 9)
    client.store._search.put_off(request, 4.0, client.clock.boot())
    client.clock.advance(3.5)
    reply = await client.store.exchange(client.hands.me, [], [request])  # looks below the floors
    assert reply.next_look == pytest.approx(0.5)


T, U = ClaimRequest(["t"], 9), ClaimRequest(["u"], 9)


@pytest.fixture
def searches() -> LaneSearch:
    return LaneSearch()


def test_a_search_takes_a_small_share_of_the_time(searches: LaneSearch) -> None:
    searches.note_end(T, SLOW_ENTRIES - 1, 9e9, 0.0)
    assert searches.ask([T], 0.0).everywhere == [True], "a busy machine makes no search slow"
    searches.note_end(T, SLOW_ENTRIES, 0.1, 0.0)
    assert searches.seconds_to_next([T], 0.0) == pytest.approx(0.1 * FULL_SHARE)
    searches.note_end(T, SLOW_ENTRIES, 9e9, 0.0)
    assert searches.seconds_to_next([T], 0.0) == FULL_SECONDS_MAX


def test_each_kind_of_request_has_its_own_search(searches: LaneSearch) -> None:
    searches.note_end(T, SLOW_ENTRIES, 0.1, 0.0)
    assert searches.ask([T, U], 0.0).everywhere == [False, True]


def test_where_too_many_queues_were_named_all_are_searched(searches: LaneSearch) -> None:
    searches.note_end(T, SLOW_ENTRIES, 9.0, 0.0)
    names = [f"q{n}" for n in range(NEWS_MAX)]
    asked = searches.ask([msgspec.structs.replace(T, news=tuple(names))], 0.0)
    assert asked == Search([False], names)
    assert searches.ask([T], 0.0) == asked, "they are read until all is searched"
    assert searches.ask([msgspec.structs.replace(T, news=("more",))], 0.0) == Search([True], [])


async def test_an_exchange_that_breaks_off_keeps_the_news_and_puts_the_search_off(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search may take longer than a statement may: claims go on in known lanes meanwhile."""
    await client.add(NewJob(task="t", queue="a"))
    assert len(await client.take(9)) == 1
    ids = await client.add(NewJob(task="t", queue="a"), NewJob(task="t", queue="b"))
    send = client.store._send

    async def too_long(values: Callable[[bool], tuple[Any, ...]]) -> Any:
        if AskedClaim(*values(True)[-len(AskedClaim._fields) :]).searches == "{1}":
            raise StoreUnavailable("canceling statement due to statement timeout")
        return await send(values)

    monkeypatch.setattr(client.store, "_send", too_long)
    with pytest.raises(StoreUnavailable):
        await client.take(9)
    assert [each.job_id for each in await client.take(9)] == ids[:1]
    assert [each.job_id for each in await client.take(9, news=("b",))] == ids[1:]


async def test_an_exchange_that_breaks_off_at_once_puts_the_search_off_for_a_second_at_most(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was dropped says nothing of how long a search takes."""
    (job,) = await client.add(NewJob(task="t", queue="a"))
    with monkeypatch.context() as patched, pytest.raises(StoreUnavailable):
        patched.setattr(client.store, "_send", dropped)
        await client.take(9)
    client.clock.advance(FULL_SECONDS)
    assert [each.job_id for each in await client.take(9)] == [job]


async def test_what_was_named_to_an_exchange_that_breaks_off_is_remembered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = await client.add(NewJob(task="t", queue="a"))
    with monkeypatch.context() as patched, pytest.raises(StoreUnavailable):
        patched.setattr(client.store, "_send", dropped)
        await client.take(9, news=("a",))
    assert [each.job_id for each in await client.take(9)] == [job]


async def test_in_another_incarnation_all_is_searched_at_once(
    client: Client,
) -> None:
    """What a client knew of the lanes is forgotten then, so it would find nothing."""
    (old,) = await client.add(NewJob(task="t", queue="a"))
    assert [each.job_id for each in await client.take(9)] == [old]
    (new,) = await client.add(NewJob(task="t", queue="b"))
    request = ClaimRequest(["t"], 9)
    client.store._search.put_off(request, FULL_SECONDS_MAX, client.clock.boot())
    connection = await asyncpg.connect(client.url)
    await connection.execute("UPDATE outlast_incarnation SET id = gen_random_uuid()")
    await connection.close()
    reply = await client.store.exchange(client.hands.me, [], [request])
    assert (reply.claimed, reply.next_look) == ([], 0.0)
    assert [each.job_id for each in await client.take(9)] == [new]


async def dropped(_values: Callable[[bool], tuple[Any, ...]]) -> Any:
    raise StoreUnavailable("the connection was closed")


# ----------------------------------------------------------------------------------- sweeps


async def test_a_sweep_over_many_queues_announces_a_bounded_number_and_some_of_each(
    client: Client,
) -> None:
    await client.add(*spread(150, 80))
    found = await client.store.waiting(0.0, 100)
    assert {*Counter(each.queue for each in found.jobs).values()} == {10_000 // 150}
    assert len({each.queue for each in found.jobs}) == 150
