"""Behind a transaction that is held open, no look walks over what has left an index of instants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from harness.stores import held_open
from outlast.model.job import Policy
from outlast.model.schedule_plan import Overlap
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import Hands, ended, enqueued, eventually, job, on
from tests.conformance.schedules_kit import firing, schedule
from tests.postgres.entries_kit import entries_read

DEAD = 3_000
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outlast_jobs"


@pytest.fixture
async def store(pg_url: str) -> AsyncIterator[PostgresStore]:
    """A store of one session, which keeps the floors and is asked for what it has read."""
    async with held_open(PostgresStore(pg_url, connections=1)) as store:
        yield store


async def becomes_cheap(
    store: PostgresStore, look: Callable[[], Awaitable[object]], index: str
) -> None:
    """Return once a look reads next to nothing of an index: the time has passed by which a floor
    lags behind, and the floor is kept."""
    async with asyncio.timeout(20):
        while True:
            before = await entries_read(store, index)
            await look()
            if await entries_read(store, index) - before < 100:
                return


async def work_off(store: PostgresStore, hands: Hands, **fields: Any) -> None:
    await enqueued(store, *[job(**fields) for _ in range(DEAD)])
    left = DEAD
    async with asyncio.timeout(60):
        while left:
            claimed = await hands.claim(500)
            await hands.hand_in(*map(ended, claimed))
            left -= len(claimed)


async def test_what_was_delayed_costs_neither_peeks_nor_claims(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await session.execute(SNAPSHOT)
    await work_off(store, hands, delay=0.001)
    index = "outlast_jobs_run_at"
    await becomes_cheap(store, lambda: hands.claim(1), index)
    await becomes_cheap(store, lambda: store.peek(hands.me), index)
    await work_off(store, hands, delay=0.001)
    await becomes_cheap(store, lambda: hands.claim(1), index)


async def cancel_before_their_time(store: PostgresStore, queue: str = "default") -> None:
    ids = await enqueued(store, *[job(delay=3_600.0, queue=queue) for _ in range(DEAD)])
    for at in range(0, DEAD, 500):
        await store.cancel(ids[at : at + 500])


async def test_what_was_cancelled_before_its_time_costs_no_look(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await session.execute(SNAPSHOT)
    await cancel_before_their_time(store)
    looks: list[Callable[[], Awaitable[object]]] = [
        lambda: hands.claim(1),
        lambda: store.peek(hands.me),
        lambda: store.waiting(0.0, 10),
    ]
    for look in looks:
        await becomes_cheap(store, look, "outlast_jobs_run_at")


async def test_what_was_cancelled_in_its_own_queue_costs_a_worker_of_queues_no_claim(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(store, job(delay=1_000.0, queue="b"))
    await session.execute(SNAPSHOT)
    await cancel_before_their_time(store, "a")
    for queues in (["a"], ["a", "b"], ["b", "c"]):
        await becomes_cheap(store, partial(hands.claim, 1, queues=queues), "outlast_jobs_due")


async def test_a_job_that_falls_due_within_a_minute_is_told_and_begins_in_its_time(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """A look reads no further ahead: workers look again by then."""
    await session.execute(SNAPSHOT)
    await work_off(store, hands, delay=0.001)
    await becomes_cheap(store, lambda: hands.claim(1), "outlast_jobs_run_at")
    (soon,) = await enqueued(store, job(delay=3.0))
    due = (await store.peek(hands.me)).next_due
    assert due is not None
    assert due <= 3.0
    async with asyncio.timeout(25):
        while not (found := await hands.claim(1)):
            await asyncio.sleep(0.02)
    assert [each.job_id for each in found] == [soon]
    await enqueued(store, job(delay=500.0))
    assert (await store.peek(hands.me)).next_due is None
    assert (await store.waiting(0.0, 10)).next_due is None


async def test_what_could_expire_costs_no_claims(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await session.execute(SNAPSHOT)
    await work_off(store, hands, expires=60.0)
    before = await entries_read(store, "outlast_jobs_expires")
    await hands.claim(1)
    assert await entries_read(store, "outlast_jobs_expires") - before < 100


async def test_deadlines_that_have_passed_cost_no_look(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await session.execute(SNAPSHOT)
    await work_off(store, hands, policy=Policy(timeout=0.01))
    await becomes_cheap(store, lambda: store.observe(0.0), "outlast_jobs_deadline")


async def test_ticks_that_were_fired_cost_neither_peeks_nor_looks(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    names = [f"s{n:03}" for n in range(300)]
    await store.put_schedules([schedule(n, overlap=Overlap.ALLOW) for n in names])
    long_ago = "UPDATE outlast_schedules SET since = since - 1000, next_tick = next_tick - 1000"
    await session.execute(long_ago)
    await session.execute(SNAPSHOT)
    for _ in range(10):
        due = (await store.due_schedules()).schedules
        assert len(due) == len(names)
        firings = [firing(each, each.since + 1, then=each.next_tick + 1) for each in due]
        assert all(answer.won for answer in await store.fire(firings))
    index = "outlast_schedules_next"
    await becomes_cheap(store, lambda: store.peek(hands.me), index)
    await becomes_cheap(store, lambda: store.observe(0.0), index)


async def test_ticks_that_were_put_off_cost_neither_peeks_nor_looks(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    names = [f"s{n:03}" for n in range(90)]
    await store.put_schedules([schedule(n, overlap=Overlap.ALLOW) for n in names])
    await session.execute(SNAPSHOT)
    for hour in range(1, 11):
        ahead = f"date_part('epoch', now()) + 3600 * {hour}"
        await watcher.execute(f"UPDATE outlast_schedules SET since = {ahead}, next_tick = {ahead}")
    await watcher.execute("UPDATE outlast_schedules SET paused = true")
    index = "outlast_schedules_next"
    await becomes_cheap(store, lambda: store.peek(hands.me), index)
    await becomes_cheap(store, lambda: store.observe(0.0), index)
    await becomes_cheap(store, store.due_schedules, index)
    await store.put_schedules([schedule("new")])
    assert [each.name for each in (await store.due_schedules()).schedules] == ["new"]
    assert ((await store.peek(hands.me)).next_tick or 0.0) <= 0.0


async def test_a_delayed_job_that_is_committed_below_a_floor_is_found(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    (late,) = await enqueued(store, job(delay=1_000.0))
    late_commit = watcher.transaction()
    await late_commit.start()
    past = "UPDATE outlast_jobs SET run_at = date_part('epoch', now()) - 1 WHERE id = $1"
    await watcher.execute(past, late)
    await session.execute(SNAPSHOT)
    await work_off(store, hands, delay=0.001)
    await becomes_cheap(store, lambda: hands.claim(1), "outlast_jobs_run_at")
    await late_commit.commit()
    async with asyncio.timeout(90):  # looks below the floor are made up to a minute apart
        while not (found := await hands.claim(1)):
            await asyncio.sleep(0.05)
    assert [each.job_id for each in found] == [late]


async def test_a_job_that_expired_below_a_floor_stands_in_no_ones_way(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    late_commit = watcher.transaction()
    await late_commit.start()
    await on(watcher).enqueue([job(expires=0.001)])
    (behind,) = await enqueued(store, job())
    await session.execute(SNAPSHOT)
    await enqueued(store, *[job(queue="other", expires=0.001) for _ in range(DEAD)])
    look = partial(hands.exchange, limit=1, queues=["none"])
    await becomes_cheap(store, look, "outlast_jobs_expires")
    await late_commit.commit()
    first = await hands.exchange(limit=1)
    assert (first.claimed, first.expired, first.next_due) == ([], 1, 0.0)
    assert [each.job_id for each in await hands.claim(1)] == [behind]


async def test_a_due_job_of_a_queue_that_is_not_served_does_not_look_due_for_good(
    store: PostgresStore, hands: Hands
) -> None:
    """Idle workers would make a trip at each peek. It waits in the line for who serves it."""
    (due,) = await enqueued(store, job(queue="b", delay=0.001))

    async def looks_due() -> bool:
        next_due = (await store.peek(hands.me)).next_due
        return next_due is not None and next_due <= 0

    assert await eventually(looks_due)
    assert await hands.claim(1, queues=["a"]) == []
    assert (await store.peek(hands.me)).next_due is None
    assert [each.job_id for each in await hands.claim(1, queues=["b"])] == [due]
