"""Each way in which a worker can be gone, beside all that its jobs may have: each job comes back
with what it had, and what the late attempt still writes changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from outlast.base.clock import SYSTEM
from outlast.errors import LostLease
from outlast.model.crash import Progress
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER, Policy, State
from outlast.model.lease import DeathCause, Presence
from outlast.model.schedule_plan import Overlap
from outlast.store.backend import backend_of
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import (
    Answer,
    Claimed,
    LockIdentity,
    NamedStep,
    NewEvent,
    Report,
    Save,
    StepFound,
)
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, eventually, job, reap, reclaimed, row_of
from tests.conformance.schedules_kit import due_one, fire_one, firing, put_one
from tests.conformance.test_children import spawned
from tests.conformance.test_dependencies import after, states
from tests.conformance.test_events import waits
from tests.conformance.test_expiry import let_expire
from tests.conformance.test_logs import log, texts
from tests.conformance.test_suspects import suspects

HOUR = 3_600.0
LOCK = LockIdentity(boot_id="here", path="/locks/w-abcdefgh.lock", device=2049, inode=77)
PLACE: dict[str, Any] = {"lock_path": LOCK.path, "lock_device": LOCK.device, "lock_inode": 77}


async def silence(hands: Hands, url: str, begun: int) -> None:
    await hands.vanish()


async def lock_file(hands: Hands, url: str, begun: int) -> None:
    gone = msgspec.structs.replace(await hands.seen(), begun=begun)
    assert await reap(hands.store, gone, DeathCause.LOCK_FILE)


async def tether(hands: Hands, url: str, begun: int) -> None:
    assert await hands.store.tell_gone(LOCK, begun) == 1
    assert await reap(hands.store, await hands.seen(), DeathCause.TETHER)


async def presence(hands: Hands, url: str, begun: int) -> None:
    backend = backend_of(url)
    if backend.open_presence is None:
        pytest.skip("this store has no presence")
    lock = backend.open_presence(url, 10.0, backend.open_wakeup(url, SYSTEM))
    assert await lock.hold(hands.me, lambda: None) is None
    await lock.release()

    async def is_reaped() -> bool:
        gone = await hands.seen()
        return gone.presence is Presence.ABSENT and await reap(
            hands.store, gone, DeathCause.PRESENCE
        )

    await eventually(is_reaped)


async def restart(hands: Hands, url: str, begun: int) -> None:
    await Hands.on(hands.store, "w1", instance="mine")


async def leave(hands: Hands, url: str, begun: int) -> None:
    assert await hands.store.set_status(hands.me, WorkerStatus.STOPPED)


async def reconnect(hands: Hands, url: str, begun: int) -> None:
    """The replies to its claims were lost."""
    again = await hands.store.reconnect(hands.me, 0)
    assert again is not None
    await hands.store.reconcile(again, [])


async def incarnation(hands: Hands, url: str, begun: int) -> None:
    """A recovery of the server has lost its claims, as the worker sees it."""
    if url.startswith("sqlite"):
        pytest.skip("a file has no incarnations: tests/sqlite/test_replaced.py")
    async with raw(url) as session:
        await session.run("DELETE FROM outlast_incarnation")
    assert not (await hands.exchange(limit=1)).valid
    await reconnect(hands, url, begun)


WAYS = [silence, lock_file, tether, presence, restart, leave, reconnect, incarnation]
UNCHARGED = {reconnect, incarnation}


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_comes_back_with_all_that_it_had_and_its_late_attempt_changes_nothing(
    store: Store, store_url: str, way: Callable[[Hands, str, int], Awaitable[None]]
) -> None:
    first = await Hands.on(store, boot_id="here", instance="mine", **PLACE)
    (suspect,) = await suspects(first)
    await put_one(store, overlap=Overlap.SKIP)
    due = await due_one(store)
    fired = await fire_one(store, firing(due, due.since, then=1.0))
    made = {
        "plain": job(),
        "key": job(key="k"),
        "gone": job(policy=Policy(keep=0.0)),
        "expires": job(expires=HOUR),
        "limited": job(policy=Policy(timeout=HOUR)),
        "cancelled": job(),
        "paused": job(queue="paused"),
        "parent": job(),
        "waits": job(),
    }
    ids = dict(zip(made, await enqueued(store, *made.values()), strict=True))
    (then,) = await enqueued(store, after(ids["plain"]))
    late = {one.job_id: one for one in await first.claim()}
    ids |= {"tick": fired.jobs[0] or 0, "suspect": suspect}
    (late[suspect],) = await first.claim(1, solo=ALONE_IN_RUNNER)
    assert late.keys() == set(ids.values())
    one = late[ids["plain"]]
    parent = late[ids["parent"]]
    (child,) = await store.spawn([job()], spawned(parent))
    assert await store.checkpoint([Save(one.job_id, one.token, 1, '"here"')]) == ["accepted"]
    assert await store.keep_steps([step(one, '"kept"')]) == [Answer.ACCEPTED]
    assert await store.keep_logs([log(one, "before")])
    assert await store.progress([Report(one.job_id, one.token, Progress(fraction=0.5))])
    await store.cancel([ids["cancelled"]])

    await let_expire(store_url, ids["expires"])

    await way(first, store_url, max(each.token for each in late.values()))
    await reclaimed(store)

    async def is_refused(each: Claimed) -> None:
        before = await row_of(store, each.job_id)
        save = Save(each.job_id, each.token, 2, '"late"')
        report = Report(each.job_id, each.token, Progress(fraction=0.9))
        assert await store.checkpoint([save]) == [Answer.REFUSED]
        assert await store.progress([report]) == [Answer.REFUSED]
        assert await store.keep_steps([step(each, '"late"')]) == [Answer.REFUSED]
        assert await store.keep_logs([log(each, "late", "later")]) == set()
        assert not await store.watch_children(each.job_id, each.token, [child.job_id])
        with pytest.raises(LostLease):
            await store.spawn([job()], spawned(each, first=5))
        assert (await first.exchange(waits(each))).answers == [Answer.REFUSED]
        assert (await first.exchange(ended(each))).answers == [Answer.REFUSED]
        assert await row_of(store, each.job_id) == before

    for each in late.values():
        await is_refused(each)
    assert await states(store, [ids["cancelled"], then]) == ["cancelled", "blocked"]
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since))).in_the_way == ids["tick"]
    rows = [await row_of(store, job_id) for job_id in late.keys() - {ids["cancelled"]}]
    assert {row.losses - late[row.id].losses for row in rows} == {0 if way in UNCHARGED else 1}
    assert {row.failures for row in rows} == {0}
    assert await enqueued(store, job(key="k")) == [ids["key"]]

    second = await Hands.on(store, "w2")
    now = {each.job_id: each for each in await second.claim(not_queues=("paused",))}
    not_yet = {suspect, ids["cancelled"], ids["paused"]}
    if way in UNCHARGED:  # it has not begun
        not_yet.add(ids["expires"])
    assert sorted(now) == sorted({*ids.values(), child.job_id} - not_yet)
    now |= {each.job_id: each for each in await second.claim()}
    solo = ALONE_IN_RUNNER if way in UNCHARGED else ALONE_IN_WORKER  # it has lost two workers
    stays = await row_of(store, suspect)
    assert (stays.state, stays.solo) == (State.QUEUED, solo)
    assert now[one.job_id].checkpoint == '"here"'
    assert await store.find_steps([step(now[one.job_id])]) == [StepFound(Answer.ALREADY, '"kept"')]
    assert await texts(store, one.job_id) == [["before"]]
    again = spawned(now[parent.job_id]).step
    assert (await store.find_steps([msgspec.structs.replace(again, value=None)]))[0].value
    for each in late.values():
        await is_refused(each)
    assert not (await store.observe()).overdue
    waiting = now.pop(ids["waits"])
    assert (await second.exchange(waits(waiting))).answers == [Answer.ACCEPTED]
    await store.send_event(NewEvent("approve:17", "[1]"))
    ends = [ended(each) for each in now.values()]
    reply = await second.exchange(*ends, limit=10)
    assert set(reply.answers) == {Answer.ACCEPTED}
    assert {each.job_id for each in reply.claimed} == {then, waiting.job_id}
    assert await states(store, [ids["gone"], ids["plain"]]) == ["gone", "completed"]


def step(claimed: Claimed, value: str | None = None) -> NamedStep:
    return NamedStep(claimed.job_id, claimed.token, "cover", value)
