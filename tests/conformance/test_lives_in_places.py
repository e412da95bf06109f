"""Each place in which a job waits meets each way to come there, to come back, and to leave it.

A place is the line, or a stream of some kind, each time in a new queue. All the time, nothing
starts that may not, the job behind it starts once it may, no count is left behind, and no stream is
forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec, Need, Per, permit_id, stream_id
from outlast.store.limits import NewLimit
from outlast.store.protocol import Store
from outlast.store.values import Answer, Claimed, NewJob, OnKey
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, eventually, job, lost_worker, on
from tests.conformance.limits_kit import limited, need
from tests.conformance.schedules_kit import due_one, fire_one, firing, put_one
from tests.conformance.test_aging import aging

DEBOUNCE = OnKey(replaces=True, until_start=True)


def in_order(name: str, key: str) -> Need:
    return Need(permit_id(name, key), name, key, 1.0, True)


def ageing(queue: str, delay: float = 0.0, **own: Any) -> NewJob:
    """A job of a task in which tenants take turns, too."""
    needs = [need("one")]
    one = aging(*needs, now=time.time() + delay, queue=queue, tenant="t", **own)
    return msgspec.structs.replace(one, stream=stream_id(TASK, queue, None, needs, "t"))


TENANT = {"fair": "t", "tenant": "t"}
PLACES: dict[str, Callable[..., NewJob]] = {
    "line": job,
    "permit": lambda **own: limited(need("one"), **own),
    "two permits": lambda **own: limited(need("one"), need("each", "x"), **own),
    "order": lambda **own: limited(in_order("o", ""), **own),
    "ageing": ageing,
    "turns": lambda **own: limited(need("one"), **TENANT | own),
    "turns in order": lambda **own: limited(in_order("own", "t"), **TENANT | own),
}
HOLDS = dict.fromkeys(("permit", "two permits", "ageing", "turns"), "one")
HOLDS |= {"order": "o", "turns in order": "own"}


class Life:
    """One job in a place, and another that waits behind it."""

    def __init__(self, store: Store, place: str, number: int) -> None:
        self.store = store
        self.place = place
        self.queue = f"q{number}"
        self.key = f"{place} {number}"
        self.id = 0
        self.asks_again: NewJob | None = None  # with its key
        self.gets_the_same = False  # for that, also after its end

    def make(self, **own: Any) -> NewJob:
        return PLACES[self.place](queue=self.queue, **own)

    async def hire(self) -> None:
        self.hands = await Hands.on(self.store, lease=600.0, heartbeat=100.0)

    async def put(self, new: NewJob) -> int:
        (one,) = await self.store.enqueue([new])
        return one.job_id

    async def due(self) -> None:
        async with raw(self.store.url) as file:
            await file.run(f"UPDATE outlast_jobs SET run_at = enqueued_at WHERE id = {self.id}")

    async def holds(self, count: int, waiting: int | None = None) -> None:
        """No more attempts are counted than run, nothing is forgotten, and this many jobs wait."""
        assert (await verify(self.store.inspector)).findings == []
        if waiting is not None:
            assert await self.store.inspector.waiting(self.queue, 9) == waiting
        if name := HOLDS.get(self.place):
            rows = await self.store.inspector.permits(name)
            assert sum(row.used - row.noted for row in rows) == count

    async def take(self, solo: int = 0) -> Claimed:
        """Nothing starts while all is paused; then this job does."""
        await self.holds(0, waiting=1)
        paused = {"not_queues": [self.queue]}
        assert await self.hands.claim(9, solo=solo, **paused) == []
        if "turns" in self.place or self.place == "ageing":
            assert await self.hands.claim(9, solo=solo, not_tenants=["t"]) == []
        (one,) = await eventually(lambda: self.hands.claim(1, solo=solo))
        assert one.job_id == self.id
        await self.holds(1, waiting=0)
        return one


# ---------------------------------------------------------------------------- ways to come there


async def enqueue(life: Life) -> None:
    life.id = await life.put(life.make())


async def enqueue_with_key(life: Life) -> None:
    life.asks_again = life.make(key=life.key)
    life.id = await life.put(life.asks_again)
    assert await life.put(life.asks_again) == life.id


async def enqueue_in_a_window(life: Life) -> None:
    life.asks_again = life.make(key=life.key, on_key=OnKey(window=1e9))
    life.gets_the_same = True
    life.id = await life.put(life.asks_again)
    assert await life.put(life.asks_again) == life.id


async def fall_due(life: Life) -> None:
    life.id = await life.put(life.make(delay=0.02))


async def replace(life: Life) -> None:
    """It has waited in the line, and after that for its time."""
    for call in (job(delay=9.0), life.make(), life.make(delay=900.0), life.make()):
        new = msgspec.structs.replace(call, key=life.key, on_key=DEBOUNCE)
        life.id = await life.put(new)


async def tick(life: Life) -> None:
    await put_one(life.store, name=life.key, call=life.make())
    due = await due_one(life.store)
    answer = await fire_one(life.store, firing(due, due.next_tick))
    life.id = next(filter(None, answer.jobs))


async def enqueue_in_a_transaction(life: Life) -> None:
    async with raw(life.store.url) as file:
        await file.run("BEGIN")
        (one,) = await on(file._connection).enqueue([life.make()])
        await file.run("COMMIT")
        life.id = one.job_id


# ------------------------------------------------------------------------------ ways to come back


async def stay(life: Life, one: Claimed) -> Claimed:
    return one


async def retry(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(crashed(one, delay=900.0))
    await life.holds(0)
    await life.due()
    return await life.take()


async def snooze(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=0.0))
    return await life.take()


async def go_back_unbegun(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(ended(one, OutcomeKind.RELEASED, began=False))
    return await life.take()


async def go_back_begun(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(ended(one, OutcomeKind.RELEASED))
    return await life.take()


async def lose_the_worker(life: Life, one: Claimed) -> Claimed:
    """An end that the lost worker hands in later changes nothing."""
    late = life.hands
    await late.vanish()
    await life.hire()
    await life.store.reclaim(lost_worker)
    await life.due()
    again = await life.take()
    assert await late.hand_in(ended(one)) == [Answer.REFUSED]
    await life.holds(1, waiting=0)
    return again


async def lose_two_workers(life: Life, one: Claimed) -> Claimed:
    """From then on it runs alone in its worker."""
    await lose_the_worker(life, one)
    await life.hands.vanish()
    await life.hire()
    await life.store.reclaim(lost_worker)
    await life.due()
    assert await life.hands.claim() == []
    return await life.take(solo=2)


async def see_another_run_of_the_database(life: Life, one: Claimed) -> Claimed:
    async with raw(life.store.url) as file:
        if await file.run("DELETE FROM outlast_incarnation"):
            assert not (await life.hands.exchange(limit=9)).valid
    me = await life.store.reconnect(life.hands.me, 0)
    assert me is not None
    life.hands.me = me
    await life.holds(1, waiting=0)
    return one


async def lose_the_reply(life: Life, one: Claimed) -> Claimed:
    assert len(await life.store.reconcile(life.hands.me, [])) == 1
    return await life.take()


async def be_suspected(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(crashed(one, CrashKind.BYSTANDER, incident=1))
    assert await life.hands.claim() == []
    return await life.take(solo=1)


async def be_revived(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(ended(one, OutcomeKind.DEAD))
    await life.holds(0)
    await life.store.requeue([life.id])
    return await life.take()


async def be_cancelled_and_revived(life: Life, one: Claimed) -> Claimed:
    await life.hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=900.0))
    await life.hands.claim()
    await life.store.cancel([life.id])
    await life.holds(0)
    await life.store.requeue([life.id], from_scratch=True)
    return await life.take()


# -------------------------------------------------------------------------------- ways to an end


async def complete(life: Life, one: Claimed) -> None:
    await life.hands.hand_in(ended(one))


async def complete_and_be_gone(life: Life, one: Claimed) -> None:
    async with raw(life.store.url) as file:
        await file.run(f"UPDATE outlast_jobs SET keep = 0 WHERE id = {life.id}")
    await life.hands.hand_in(ended(one))
    assert await life.store.inspector.job(life.id) is None


async def complete_in_a_transaction(life: Life, one: Claimed) -> None:
    async with raw(life.store.url) as file:
        await file.run("BEGIN")
        assert await on(file._connection).complete(one.job_id, one.token, None)
        await file.run("COMMIT")


async def die(life: Life, one: Claimed) -> None:
    await life.hands.hand_in(ended(one, OutcomeKind.DEAD))


async def die_and_be_discarded(life: Life, one: Claimed) -> None:
    await die(life, one)
    await life.store.discard([life.id])


async def be_cancelled(life: Life, one: Claimed) -> None:
    """The request wins over the return."""
    await life.store.cancel([life.id])
    await life.hands.hand_in(ended(one, OutcomeKind.RELEASED))


async def be_cancelled_while_it_waits(life: Life, one: Claimed) -> None:
    await life.hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=900.0))
    await life.holds(0)
    await life.store.cancel([life.id])


async def be_cancelled_where_it_waits(life: Life, one: Claimed) -> None:
    await life.hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=0.0))
    await life.store.cancel([life.id])


async def expire(life: Life, one: Claimed) -> None:
    """It has not begun."""
    await life.hands.hand_in(ended(one, OutcomeKind.RELEASED, began=False, delay=900.0))
    if "order" in life.place:
        assert await life.hands.claim() == []
    async with raw(life.store.url) as file:
        await file.run(f"UPDATE outlast_jobs SET expires_at = enqueued_at WHERE id = {life.id}")


PUTS = [
    enqueue, enqueue_with_key, enqueue_in_a_window, fall_due, replace, tick,
    enqueue_in_a_transaction,
]  # fmt: skip
BACKS: list[Callable[[Life, Claimed], Awaitable[Claimed]]] = [
    stay, retry, snooze, go_back_unbegun, go_back_begun, lose_the_worker, lose_two_workers,
    lose_the_reply, see_another_run_of_the_database, be_suspected, be_revived,
    be_cancelled_and_revived,
]  # fmt: skip
ENDS: list[Callable[[Life, Claimed], Awaitable[None]]] = [
    complete, complete_and_be_gone, complete_in_a_transaction, die, die_and_be_discarded,
    be_cancelled, be_cancelled_while_it_waits, be_cancelled_where_it_waits, expire,
]  # fmt: skip


async def live(life: Life, put: Any, back: Any, end: Any) -> None:
    await life.hire()
    await put(life)
    one = await back(life, await life.take())
    behind = await life.put(life.make())
    if life.place in HOLDS:
        assert await life.hands.claim() == []
    await life.holds(1, waiting=1)
    await end(life, one)
    (last,) = await eventually(life.hands.claim)
    assert last.job_id == behind
    await life.holds(1, waiting=0)
    await life.hands.hand_in(ended(last))
    assert await life.hands.claim() == []
    await life.holds(0, waiting=0)
    if life.asks_again is not None:
        stored = await life.put(life.asks_again)
        assert (stored == life.id) == life.gets_the_same
        await life.store.cancel([stored])


async def rest(store: Store) -> None:
    """A day goes by, after which unused rows of streams and permits are deleted."""
    async with raw(store.url) as file:
        await file.run("UPDATE outlast_streams SET touched_at = touched_at - 90000")
        await file.run("UPDATE outlast_permits SET touched_at = touched_at - 90000, tat = 0")
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)


@pytest.mark.parametrize("place", PLACES)
async def test_a_job_leaves_nothing_behind_in_its_place(store: Store, place: str) -> None:
    await store.declare_limits(
        [
            NewLimit("one", LimitSpec(running=1)),
            NewLimit("each", LimitSpec(running=1, per=Per.LIMIT_KEY)),
            NewLimit("o", LimitSpec(running=1, ordered=True)),
            NewLimit("own", LimitSpec(running=1, per=Per.TENANT, ordered=True)),
        ]
    )
    first = [*PLACES].index(place)
    for number, back in enumerate(BACKS):  # each meets other ways to come and to leave
        put, end = PUTS[(number + first) % len(PUTS)], ENDS[(number - first) % len(ENDS)]
        try:
            await live(Life(store, place, number), put, back, end)
        except Exception as error:
            error.add_note(f"{put.__name__}, {back.__name__}, {end.__name__}")
            raise
        if number % 2:
            await rest(store)
