"""A claim in brief on PostgreSQL: what a worker that waits takes of the lanes that it knows.

Everything else that an exchange looks at is looked at by the next one, or by the same one where the
claim in brief brings nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast.model.lifecycle import OutcomeKind
from outlast.store.postgres import PostgresStore
from outlast.store.postgres_exchange import REST_SECONDS, PostgresExchange
from outlast.store.postgres_lanes import BRIEF_MAX, FULL_SECONDS, LAG_SECONDS
from outlast.store.postgres_sql import sql
from outlast.store.values import Exchanged, NewJob, Room, WorkerRef
from outlast.testing import ManualClock
from tests.conformance.kit import TASK, ended, job, new_worker

OTHER = "app.other"
WAIT_SECONDS = 30.0


class Waiting:
    """A worker that has had a job, on a store with a clock of its own."""

    def __init__(self, store: PostgresStore, clock: ManualClock, me: WorkerRef) -> None:
        self.store, self.clock, self.me = store, clock, me

    async def add(self, *jobs: NewJob) -> list[int]:
        return [one.job_id for one in await self.store.enqueue(jobs)]

    async def ask(self, limit: int = 100, **room: Any) -> Exchanged:
        return await self.store.exchange(self.me, [], [Room([TASK, OTHER], limit, **room)])

    async def complete(self, reply: Exchanged) -> Exchanged:
        ends = [ended(one, OutcomeKind.COMPLETED, result="1") for one in reply.claimed]
        return await self.store.exchange(self.me, ends, [Room([TASK, OTHER], 100)])

    async def had_one(self) -> None:
        await self.add(job())
        await self.complete(await self.ask())
        self.clock.advance(LAG_SECONDS)


def ids(reply: Exchanged) -> list[int]:
    return [one.job_id for one in reply.claimed]


def is_brief(reply: Exchanged) -> bool:
    return bool(reply.claimed) and reply.next_due == REST_SECONDS


@pytest.fixture
async def waiting(pg_url: str) -> AsyncIterator[Waiting]:
    clock = ManualClock(boot=0.0)
    store = PostgresStore(pg_url, clock=clock, connections=2)
    await store.open()
    made = Waiting(store, clock, await store.register(new_worker()))
    await made.had_one()
    yield made
    await store.close()


async def test_it_tells_of_a_job_what_a_whole_exchange_tells(waiting: Waiting) -> None:
    fields: dict[str, Any] = {"args": '{"a":[1]}', "tenant": "acme"}
    await waiting.add(job(**fields))
    brief = await waiting.ask()
    await waiting.add(job(**fields))
    whole = await waiting.ask()
    assert (is_brief(brief), is_brief(whole)) == (True, False)
    (one,), (other,) = brief.claimed, whole.claimed
    told, expected = ({n: getattr(c, n) for n in c.__struct_fields__} for c in (one, other))
    assert told.pop("token") < expected.pop("token")
    assert told.pop("job_id") < expected.pop("job_id")
    assert told == expected
    assert (await waiting.complete(brief)).answers == ["accepted"]


async def test_it_takes_the_line_in_its_order_and_leaves_half_of_the_room(waiting: Waiting) -> None:
    await waiting.add(job(priority=5))
    await waiting.complete(await waiting.ask())
    late, soon, first = await waiting.add(job(), job(priority=5), job(priority=5))
    urgent, *_ = await waiting.add(job(priority=9))
    assert ids(await waiting.ask(4)) == [soon, first], "of the lanes that are known"
    assert ids(await waiting.ask(2)) == [urgent, late]


async def test_the_next_exchange_looks_at_everything(waiting: Waiting) -> None:
    (known,) = await waiting.add(job())
    (new_lane,) = await waiting.add(job(task=OTHER, queue="b"))
    await waiting.add(job(delay=60))
    brief, whole = await waiting.ask(), await waiting.ask()
    assert (ids(brief), ids(whole)) == ([known], [new_lane])
    assert whole.next_due is not None
    assert whole.next_due > REST_SECONDS


async def test_what_is_not_in_a_known_lane_is_found_by_the_same_exchange(waiting: Waiting) -> None:
    (new_lane,) = await waiting.add(job(priority=1))
    assert ids(await waiting.ask()) == [new_lane]


async def test_a_worker_that_others_are_faster_than_does_not_ask_twice_each_time(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def spied(self: PostgresExchange, me: WorkerRef, rooms: Any) -> Any:
        asked.append("whole" if self._lanes.brief(rooms) is None else "brief")
        return await in_brief(self, me, rooms)

    in_brief = PostgresExchange._in_brief
    monkeypatch.setattr(PostgresExchange, "_in_brief", spied)
    for _ in range(3):
        assert ids(await waiting.ask()) == []
    assert asked == ["brief", "whole", "whole"]
    await waiting.add(job())
    assert not is_brief(await waiting.ask()), "it has brought nothing the last time"
    await waiting.add(job())
    assert is_brief(await waiting.ask())


@pytest.mark.parametrize("room", [{"limit": 3}, {"named": [1]}, {"solo": 1}, {"limit": 0}], ids=str)
async def test_some_rooms_are_for_whole_exchanges_only(
    room: dict[str, Any], waiting: Waiting
) -> None:
    await waiting.add(job())
    assert not is_brief(await waiting.ask(**room))


async def test_several_queues_are_left_to_a_whole_exchange(waiting: Waiting) -> None:
    await waiting.add(job(queue="a"))
    await waiting.complete(await waiting.ask())
    await waiting.add(job(), job(queue="a"))
    assert len(ids(await waiting.ask())) == 2
    await waiting.add(job(), job(queue="a"))
    assert is_brief(await waiting.ask(queues=["a"]))


async def test_a_look_without_floors_is_not_put_off(waiting: Waiting) -> None:
    waiting.clock.advance(FULL_SECONDS)
    await waiting.add(job())
    assert not is_brief(await waiting.ask())


async def test_it_takes_few_at_a_time(waiting: Waiting) -> None:
    await waiting.add(*[job()] * (BRIEF_MAX + 5))
    first, rest = await waiting.ask(), await waiting.ask()
    assert (len(ids(first)), len(ids(rest))) == (BRIEF_MAX, 5)
    assert first.next_due == 0, "there may be more"


@pytest.mark.parametrize("status", ["draining", "stopped"])
async def test_a_worker_that_leaves_takes_nothing(
    status: str, waiting: Waiting, session: Any
) -> None:
    await session.execute(
        "UPDATE outlast_workers SET status = $1::text, stopped_at = CASE WHEN $1::text = 'stopped'"
        " THEN now() END",
        status,
    )
    await waiting.add(job())
    assert ids(await waiting.ask()) == []


async def test_a_claim_that_waits_for_a_reap_takes_nothing(waiting: Waiting, session: Any) -> None:
    await waiting.add(job())
    async with session.transaction():
        await session.fetch(sql("reap"), waiting.me.worker_id, 0, "silence")
        asking = asyncio.create_task(waiting.ask())
        await is_blocked(session)
    reply = await asking
    assert (reply.valid, reply.claimed) == (False, [])


async def test_a_claim_that_waits_for_a_reconnect_takes_nothing(
    waiting: Waiting, session: Any
) -> None:
    await waiting.add(job())
    async with session.transaction():
        await session.fetch(sql("reconnect"), waiting.me.worker_id)
        asking = asyncio.create_task(waiting.ask())
        await is_blocked(session)
    reply = await asking
    assert (reply.valid, reply.claimed) == (False, [])


async def test_a_row_that_somebody_holds_is_passed_over(waiting: Waiting, session: Any) -> None:
    held, free = await waiting.add(job(), job())
    async with session.transaction():
        await session.fetch("SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE", held)
        reply = await waiting.ask()
    assert (is_brief(reply), ids(reply)) == (True, [free])
    assert ids(await waiting.ask()) == [held]


async def is_blocked(session: Any) -> None:
    """Return once another session of this database waits for a lock."""
    text = """SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await session.fetchval(text):
            await asyncio.sleep(0.01)
