"""A claim on PostgreSQL reads the line from remembered floors, and loses nothing by it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store import postgres_lanes
from outlast.store.postgres import PostgresStore, enqueue_on
from outlast.store.postgres_lanes import FULL_SECONDS, LAG_SECONDS, Lanes
from outlast.store.values import Claimed, NewJob, NewWorker, Room, WorkerRef
from outlast.testing import ManualClock
from tests.conformance.entries_kit import entries_read

LANE = "outlast_jobs_lane"


class Line:
    """A store with a clock of its own, a worker on it, and what it claims."""

    def __init__(self, store: PostgresStore, clock: ManualClock, me: WorkerRef) -> None:
        self.store, self.clock, self.me = store, clock, me

    async def add(self, *jobs: NewJob) -> list[int]:
        return [one.job_id for one in await self.store.enqueue(jobs)]

    async def take(self, limit: int = 100, tasks: str = "t u") -> list[int]:
        """Claim, and complete at once."""
        reply = await self.store.exchange(self.me, [], [Room(tasks.split(), limit)])
        await self.store.exchange(self.me, [completed(each) for each in reply.claimed], [])
        return [each.job_id for each in reply.claimed]

    async def settle(self) -> None:
        """Let floors rise to what was claimed, without a look without floors."""
        self.clock.advance(LAG_SECONDS)


def completed(claimed: Claimed) -> Transition:
    return Transition(
        job_id=claimed.job_id,
        token=claimed.token,
        state=State.COMPLETED,
        outcome="completed",
        charge=Charge.NONE,
        failures=0,
        losses=0,
    )


@pytest.fixture
async def line(pg_url: str) -> AsyncIterator[Line]:
    clock = ManualClock(boot=0.0)
    store = PostgresStore(pg_url, clock=clock)
    await store.open()
    new = NewWorker(name="w", host="h", pid=1, boot_id="b", heartbeat=2.0, lease=60.0)
    yield Line(store, clock, await store.register(new))
    await store.close()


async def test_what_commits_behind_the_floor_is_found_by_the_next_look_without_floors(
    line: Line, pg_url: str
) -> None:
    other = await asyncpg.connect(pg_url)
    late = other.transaction()
    await late.start()
    (held,) = await enqueue_on(other, [NewJob(task="t")])
    await line.add(*[NewJob(task="t")] * 10)
    assert len(await line.take()) == 10
    await line.settle()
    await late.commit()
    await other.close()
    assert await line.take() == [], "it stands below the floor"
    line.clock.advance(FULL_SECONDS)
    assert await line.take() == [held.job_id]


async def test_a_large_transaction_that_commits_late_is_worked_off_without_pauses(
    line: Line, pg_url: str
) -> None:
    other = await asyncpg.connect(pg_url)
    late = other.transaction()
    await late.start()
    held = await enqueue_on(other, [NewJob(task="t")] * 30)
    await line.add(*[NewJob(task="t")] * 10)
    assert len(await line.take()) == 10
    await line.settle()
    await late.commit()
    await other.close()
    line.clock.advance(FULL_SECONDS)
    taken = [await line.take(10) for _ in range(3)]
    assert [job_id for ids in taken for job_id in ids] == [one.job_id for one in held]


async def test_what_commits_a_moment_late_is_found_at_once(line: Line, pg_url: str) -> None:
    other = await asyncpg.connect(pg_url)
    late = other.transaction()
    await late.start()
    (held,) = await enqueue_on(other, [NewJob(task="t")])
    await line.add(*[NewJob(task="t")] * 10)
    assert len(await line.take()) == 10
    await late.commit()
    await other.close()
    assert await line.take() == [held.job_id], "floors lag behind what was claimed"


async def test_a_new_lane_is_found_at_once_wherever_it_is(line: Line) -> None:
    await line.add(NewJob(task="t", queue="m"), NewJob(task="u", queue="m"))
    assert len(await line.take()) == 2
    await line.settle()
    jobs = [
        NewJob(task=task, queue=queue, priority=priority)
        for queue in ("a", "m", "z", "ä")
        for task in ("t", "u")
        for priority in (-100, 0, 100)
    ]
    ids = await line.add(*jobs)
    assert sorted(await line.take()) == ids


async def test_priority_goes_before_position_whatever_is_known(line: Line) -> None:
    await line.add(*[NewJob(task="t")] * 5)
    assert len(await line.take(2)) == 2
    await line.settle()
    (urgent,) = await line.add(NewJob(task="u", priority=7))
    (most,) = await line.add(NewJob(task="t", priority=9))
    assert (await line.take(2)) == [most, urgent]
    assert len(await line.take()) == 3


@pytest.mark.parametrize("held", [39, 40, 45, 60])
async def test_what_others_hold_at_the_head_of_several_lanes_hides_nothing_behind_it(
    line: Line, session: asyncpg.Connection, held: int
) -> None:
    """The heads of lanes are merged, four times as many as wanted: others may hold all of them."""
    jobs = [NewJob(task=task) for _ in range(40) for task in ("t", "u")]
    ids = await line.add(NewJob(task="u", priority=-1), *jobs, NewJob(task="u", priority=1))
    first, last, ids = ids[-1], ids[0], ids[1:-1]
    async with session.transaction():
        await session.fetch(
            "SELECT id FROM outlast_jobs WHERE id = ANY ($1::bigint[]) FOR UPDATE", ids[:held]
        )
        taken = await line.take(10)
    assert taken[0] == first, "priority goes before position"
    assert len({*taken}) == 10
    assert {*taken} <= {first, *ids[held:]}
    assert {*await line.take(100)} == {last, *ids} - {*taken}


async def test_what_goes_back_to_the_queue_stands_above_the_floor(line: Line) -> None:
    (job,) = await line.add(NewJob(task="t"))
    await line.add(*[NewJob(task="t")] * 5)
    (claimed,) = (await line.store.exchange(line.me, [], [Room(["t"], 1)])).claimed
    assert len(await line.take()) == 5
    await line.settle()
    again = Transition(
        job_id=job,
        token=claimed.token,
        state=State.QUEUED,
        outcome="released",
        charge=Charge.NONE,
        failures=0,
        losses=0,
    )
    await line.store.exchange(line.me, [again], [])
    assert await line.take() == [job]


async def test_dead_rows_that_no_vacuum_may_take_are_not_walked_over(
    line: Line, pg_url: str
) -> None:
    """A transaction that is held open keeps all that was claimed in the index."""
    holder = await asyncpg.connect(pg_url)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetch("SELECT count(*) FROM outlast_jobs")
    await line.add(*[NewJob(task="t")] * 2_000)
    for _ in range(4):
        assert len(await line.take(500)) == 500
        await line.settle()
    await line.add(*[NewJob(task="t")] * 10)
    before = await entries_read(line.store, LANE)
    assert len(await line.take()) == 10
    assert await entries_read(line.store, LANE) - before < 1_000
    await holder.close()


async def test_a_look_without_floors_walks_over_dead_rows_once(line: Line, pg_url: str) -> None:
    holder = await asyncpg.connect(pg_url)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetch("SELECT count(*) FROM outlast_jobs")
    await line.add(*[NewJob(task="t")] * 2_000)
    for _ in range(4):
        assert len(await line.take(500)) == 500
    await line.add(*[NewJob(task="t")] * 10)
    line.clock.advance(FULL_SECONDS)
    before = await entries_read(line.store, LANE)
    assert len(await line.take()) == 10
    assert 2_000 < await entries_read(line.store, LANE) - before < 3_000
    await holder.close()


def test_a_client_that_knows_too_many_lanes_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lanes, "LANES_MAX", 3)
    lanes = Lanes(ManualClock(boot=0.0))
    lanes.found([("q", "t", n) for n in range(3)])
    assert len(lanes._lanes) == 3
    assert lanes._columns == ['{"q","q","q"}', '{"t","t","t"}', "{0,1,2}"]
    lanes.found([("q", "t", 9)])
    assert (lanes._lanes, lanes._columns) == ({}, ["{}"] * 3)


def test_looks_without_floors_take_a_small_share_of_the_time() -> None:
    clock = ManualClock(boot=0.0)
    lanes = Lanes(clock)
    assert lanes.ask()[1], "nothing is known yet"
    lanes.looked(0.2)
    clock.advance(3.0)
    assert not lanes.ask()[1]
    clock.advance(1.5)
    assert lanes.ask()[1]
    lanes.looked(0.0)
    clock.advance(FULL_SECONDS)
    assert lanes.ask()[1]
    lanes.looked(0.0)
    lanes.forget()
    assert lanes.ask()[1], "it may be another server now"
