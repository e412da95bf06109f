"""A claim on PostgreSQL reads the line from remembered floors, and misses no job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from outlast.errors import StoreUnavailable
from outlast.model.crash import Charge, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store.postgres import exchange
from outlast.store.postgres.exchange import (
    FULL_SECONDS,
    FULL_SECONDS_MAX,
    FULL_SHARE,
    LAG_SECONDS,
    SLOW_SECONDS,
    AskedClaim,
    ClaimFloors,
    LookBelow,
)
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Claimed, ClaimRequest, NewJob, NewWorker, WorkerRef
from tests.conformance.kit import crashed, on
from tests.manual_clock import ManualClock
from tests.postgres.entries_kit import entries_read
from tests.postgres.kit import until

LANE = "outlast_jobs_lane"
NONE_LEFT = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ANY ($1)"


class Line:
    """A store with a clock of its own, a worker on it, and what it claims."""

    def __init__(self, store: PostgresStore, clock: ManualClock, me: WorkerRef) -> None:
        self.store, self.clock, self.me = store, clock, me

    async def add(self, *jobs: NewJob) -> list[int]:
        return [one.job_id for one in await self.store.enqueue(jobs)]

    async def take(self, limit: int = 100, tasks: str = "t u") -> list[int]:
        """Claim, and complete at once."""
        reply = await self.store.exchange(self.me, [], [ClaimRequest(tasks.split(), limit)])
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


async def commit_late(line: Line, pg_url: str, jobs: int = 1, *, settled: bool = True) -> list[int]:
    """Store jobs that are committed once ten later ones were claimed; return their ids."""
    other = await asyncpg.connect(pg_url)
    late = other.transaction()
    await late.start()
    held = await on(other).enqueue([NewJob(task="t")] * jobs)
    await line.add(*[NewJob(task="t")] * 10)
    assert len(await line.take()) == 10
    if settled:
        await line.settle()
    await late.commit()
    await other.close()
    return [one.job_id for one in held]


async def test_jobs_committed_below_the_floor_are_found_by_the_next_look_without_floors(
    line: Line, pg_url: str
) -> None:
    held = await commit_late(line, pg_url)
    assert await line.take() == [], "it stands below the floor"
    line.clock.advance(FULL_SECONDS)
    assert await line.take() == held


async def test_a_cleared_suspect_below_the_floor_is_found_by_the_next_look(line: Line) -> None:
    """It was passed over, and jobs behind it were claimed; then another was charged alone."""
    await line.add(*[NewJob(task="t")] * 2)
    reply = await line.store.exchange(line.me, [], [ClaimRequest(["t"], 2)])
    ends = [crashed(each, CrashKind.BYSTANDER, incident=1) for each in reply.claimed]
    await line.store.exchange(line.me, ends, [])
    for _ in range(3):
        await line.settle()
        await line.add(*[NewJob(task="t")] * 3)
        assert len(await line.take()) == 3
    alone = await line.store.exchange(line.me, [], [ClaimRequest(["t"], 1, solo=1)])
    (culprit,) = alone.claimed
    await line.store.exchange(line.me, [crashed(culprit, CrashKind.SIGNALLED)], [])
    assert await line.take() == []
    line.clock.advance(FULL_SECONDS)
    assert await line.take() == [
        each.job_id for each in reply.claimed if each.job_id != culprit.job_id
    ]


async def test_no_floor_follows_a_position_that_was_never_drawn(line: Line, pg_url: str) -> None:
    """A role that may enqueue can write one: all jobs to come would be below it."""
    other = await asyncpg.connect(pg_url)
    await other.execute(
        "INSERT INTO outlast_jobs (run_at, enqueued_at, task, queue, args, position)"
        " VALUES (0, 0, 't', 'default', '{}', 9223372036854775806)"
    )
    await other.execute("SELECT outlast_thin_lanes_v1()")
    await other.close()
    assert len(await line.take()) == 1
    await line.settle()
    stored = await line.add(NewJob(task="t"))
    assert await line.take() == stored


async def test_a_claim_from_floors_alone_says_when_it_is_looked_below_them(
    line: Line, pg_url: str
) -> None:
    """A worker that finds nothing rests for longer than that, and a late commit wakes it once."""
    held = await commit_late(line, pg_url)
    reply = await line.store.exchange(line.me, [], [ClaimRequest(["t"], 9)])
    assert reply.claimed == []
    assert reply.next_look == pytest.approx(FULL_SECONDS - LAG_SECONDS)
    only_suspects = await line.store.exchange(line.me, [], [ClaimRequest(["t"], 9, solo=1)])
    assert only_suspects.next_look is None, "a full worker does not come back for it"
    line.clock.advance(FULL_SECONDS - LAG_SECONDS)
    reply = await line.store.exchange(line.me, [], [ClaimRequest(["t"], 9)])
    assert [each.job_id for each in reply.claimed] == held


async def test_a_large_transaction_that_commits_late_is_worked_off_without_pauses(
    line: Line, pg_url: str
) -> None:
    held = await commit_late(line, pg_url, 30)
    line.clock.advance(FULL_SECONDS)
    taken = [await line.take(10) for _ in range(3)]
    assert [job_id for ids in taken for job_id in ids] == held


async def test_a_job_that_commits_a_little_late_is_found_at_once(line: Line, pg_url: str) -> None:
    held = await commit_late(line, pg_url, settled=False)
    assert await line.take() == held, "floors lag behind what was claimed"


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


async def test_a_late_reply_sets_no_floor_in_a_lane_that_its_exchange_has_not_read(
    line: Line, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers share a store. One reads all lanes while a job is stored in a new one; before it
    hears its reply, the other one hears of the new lane."""
    monkeypatch.setattr(exchange, "WALK_MAX", -1)  # each exchange has read many entries
    await line.add(NewJob(task="t"))
    await line.take()
    late = session.transaction()
    await late.start()
    (new,) = await on(session).enqueue([NewJob(task="t", queue="new")])
    known = await line.add(NewJob(task="t"))
    send = line.store._send

    async def send_and_be_late(values: Any) -> Any:
        reply = await send(values)
        monkeypatch.setattr(line.store, "_send", send)
        await late.commit()
        assert await line.take(tasks="u") == []
        return reply

    monkeypatch.setattr(line.store, "_send", send_and_be_late)
    assert await line.take() == known
    await line.settle()
    assert await line.take() == [new.job_id]


async def test_priority_goes_before_position_also_when_floors_are_known(line: Line) -> None:
    await line.add(*[NewJob(task="t")] * 5)
    assert len(await line.take(2)) == 2
    await line.settle()
    (urgent,) = await line.add(NewJob(task="u", priority=7))
    (most,) = await line.add(NewJob(task="t", priority=9))
    assert (await line.take(2)) == [most, urgent]
    assert len(await line.take()) == 3


@pytest.mark.parametrize("held", [29, 30, 35, 60])
async def test_locked_jobs_at_the_heads_of_lanes_do_not_hide_those_behind(
    line: Line, session: asyncpg.Connection, held: int
) -> None:
    """The heads of lanes are merged, three times as many as wanted: others may hold all of them."""
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


async def test_a_requeued_job_is_placed_above_the_floor(line: Line) -> None:
    (job,) = await line.add(NewJob(task="t"))
    await line.add(*[NewJob(task="t")] * 5)
    (claimed,) = (await line.store.exchange(line.me, [], [ClaimRequest(["t"], 1)])).claimed
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


async def test_a_claim_skips_dead_rows_that_vacuum_cannot_remove(line: Line, pg_url: str) -> None:
    """An open transaction keeps all claimed rows in the index."""
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


async def test_a_look_below_the_floors_that_fails_keeps_the_floors_and_comes_back_in_parts(
    line: Line, pg_url: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind an open transaction it may take longer than a statement may."""
    monkeypatch.setattr(exchange, "PART", 300)
    other = await asyncpg.connect(pg_url)
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    (held,) = await on(other).enqueue([NewJob(task="t")])
    await line.add(*[NewJob(task="t")] * 1_000)
    for _ in range(2):
        assert len(await line.take(500)) == 500
        await line.settle()
    send = line.store._send

    async def too_long(values: Callable[[bool], tuple[Any, ...]]) -> Any:
        asked = AskedClaim(*values(True)[-len(AskedClaim._fields) :])
        if asked.look_to is not None and asked.look_to - (asked.look_from or 0) > 300:
            raise StoreUnavailable("canceling statement due to statement timeout")
        return await send(values)

    monkeypatch.setattr(line.store, "_send", too_long)
    line.clock.advance(FULL_SECONDS)
    with pytest.raises(StoreUnavailable):
        await line.take()
    idle = line.store._connections.loop_pool().idle.values()
    ended = [each.get_server_pid() for sessions in idle for each in sessions]
    await line.store.drop_connections()
    await until(lambda: session.fetchval(NONE_LEFT, ended))  # what they have read counts then
    (new,) = await line.add(NewJob(task="t"))
    before = await entries_read(line.store, LANE)
    assert await line.take() == [new]
    assert await entries_read(line.store, LANE) - before < 300
    await other.execute("COMMIT")
    await other.close()
    late: list[int] = []
    for _ in range(20):
        line.clock.advance(FULL_SECONDS)
        with suppress(StoreUnavailable):  # a part that has grown too large is tried smaller
            late += await line.take()
    assert late == [held.job_id]


async def test_a_new_client_walks_over_dead_rows_once(
    line: Line, pg_url: str, session: asyncpg.Connection
) -> None:
    """Behind a transaction that is held open. Once it has claimed, it knows from where to read."""
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await session.fetch("SELECT count(*) FROM outlast_jobs")
    await line.add(*[NewJob(task="t")] * 2_000)
    for _ in range(4):
        assert len(await line.take(500)) == 500
    ids = await line.add(*[NewJob(task="t")] * 5)
    fresh = PostgresStore(pg_url, clock=line.clock)
    await fresh.open()
    read = []
    for limit in (2, 9):
        before = await entries_read(fresh, LANE)
        claimed = (await fresh.exchange(line.me, [], [ClaimRequest(["t", "u"], limit)])).claimed
        assert [each.job_id for each in claimed] == ids[:limit]
        read.append(await entries_read(fresh, LANE) - before)
        ids = ids[limit:]
        await line.settle()
    await fresh.close()
    assert read[0] > 2_000
    assert read[1] < 100
    await session.execute("COMMIT")


async def test_floors_are_forgotten_in_another_incarnation(
    line: Line, session: asyncpg.Connection
) -> None:
    """After a failover positions may have stepped back, behind the floors."""
    ids = await line.add(*[NewJob(task="t")] * 20)
    assert len(await line.take(10)) == 10
    await line.settle()
    await session.execute("UPDATE outlast_jobs SET position = id - 11 WHERE position IS NOT NULL")
    await session.execute("UPDATE outlast_incarnation SET id = gen_random_uuid()")
    with pytest.raises(StoreUnavailable):
        await line.take()
    assert await line.take() == ids[10:]


def test_lanes_are_told_in_the_order_in_which_they_came() -> None:
    lanes = ClaimFloors()
    lanes.note_lanes(7, [("b", "t", 1), ("b", "t", 2), ("c", "t", 0), ("a", "u", 0)], 0.0)
    told = [lanes._columns[f"lane_{each}"] for each in ("queues", "tasks", "ranks")]
    assert told == ['{"b","b","c","a"}', '{"t","t","t","u"}', "{1,2,0,0}"]


def test_looks_below_the_floors_take_a_small_share_of_the_time() -> None:
    below = LookBelow()
    below.note_look((0, 9), 0.2, late=0, now=0.0)
    assert below.due_at == 0.2 * FULL_SHARE
    below.note_look((0, 9), 0.0, late=0, now=0.0)
    assert below.due_at == FULL_SECONDS
    below.note_look((0, 9), 9e9, late=0, now=0.0)
    assert below.due_at == FULL_SECONDS_MAX
    below.note_look((0, 9), 9e9, late=1, now=0.0)
    assert below.due_at == 0.0, "there may be more"


def test_a_slow_look_is_split_into_parts_until_it_is_quick() -> None:
    below = LookBelow()
    parts = []
    for seconds in (SLOW_SECONDS, 0.1, 0.01, 0.01, 0.01, 0.01, *[0.01] * 9):
        parts.append(below.part(1_000_000))
        below.note_look(parts[-1], seconds, late=0, now=0.0)
    assert parts[:5] == [
        (0, 1_000_000),
        (900_000, 1_000_000),
        (800_000, 900_000),
        (600_000, 800_000),
        (200_000, 600_000),
    ]
    assert parts[5:7] == [(0, 200_000), (0, 1_000_000)]


def test_after_a_failure_a_look_restarts_in_small_parts_and_skips_none() -> None:
    below = LookBelow()
    below.note_failure(below.part(1_000_000), 0.0)
    assert below.part(2_000_000) == (900_000, 1_000_000)
    below.note_look((900_000, 1_000_000), 0.0, late=0, now=0.0)
    below.note_failure(below.part(2_000_000), 0.0)
    assert below.part(2_000_000) == (800_000, 900_000)
