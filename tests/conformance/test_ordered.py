"""Ordered limits: jobs of one key run one after the other, in the order of the line (law L6).

A job that has begun and not ended for good holds its key: while it runs, while it waits to run
again, after its worker has died. Only its own next attempt may start.
"""

from __future__ import annotations

from typing import Any

import pytest

from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec, Need, permit_id
from outlast.store.limits import NewLimit, SetLimit
from outlast.store.protocol import Store
from outlast.store.values import Answer, NewJob
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued, eventually, job, lost_worker
from tests.conformance.limits_kit import held, limited, need
from tests.conformance.test_children import spawned, waits


def ordered(key: str = "k", **fields: Any) -> NewJob:
    """A job whose key is in strict order."""
    return limited(Need(permit_id("o", key), "o", key, 1.0, True), **fields)


@pytest.fixture(autouse=True)
async def declared(store: Store) -> None:
    await store.declare_limits([NewLimit("o", LimitSpec(running=1, per=None, ordered=True))])


async def names(hands: Hands, limit: int = 100) -> list[int]:
    return [each.job_id for each in await hands.claim(limit)]


async def holds(store: Store) -> bool:
    """Whether `outlast verify` finds nothing, such as a stream that no exchange looks at."""
    return (await verify(store.inspector)).findings == []


async def test_jobs_of_a_key_run_one_after_the_other(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[ordered()] * 4)
    free = await enqueued(store, job(), ordered("other"))
    await hands.settle()
    first = await hands.claim()
    assert {each.job_id for each in first} == {ids[0], *free}
    (mine,) = [each for each in first if each.job_id == ids[0]]
    assert await names(hands) == []
    got = [ids[0]]
    while len(got) < len(ids):
        reply = await hands.exchange(ended(mine), limit=10)
        (mine,) = reply.claimed
        got.append(mine.job_id)
        assert await held(store, "o", "k") == 1
    assert got == ids
    await hands.hand_in(ended(mine))
    assert await names(hands) == []
    assert await holds(store)


@pytest.mark.parametrize("kind", [OutcomeKind.SNOOZED, OutcomeKind.RELEASED, OutcomeKind.CRASHED])
async def test_a_job_that_waits_to_run_again_holds_its_key(
    store: Store, hands: Hands, kind: OutcomeKind
) -> None:
    ids = await enqueued(store, *[ordered()] * 3)
    one = await hands.claim_one()
    is_crash = kind is OutcomeKind.CRASHED
    end = crashed(one, delay=3600.0) if is_crash else ended(one, kind, delay=3600.0)
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    assert await held(store, "o", "k") == 0
    assert await names(hands) == [], "the key is free of attempts, and held"
    late = await enqueued(store, ordered())
    assert await names(hands) == [], "a new one changes nothing"
    assert await holds(store)
    async with raw(store.url) as file:
        await file.run("UPDATE outlast_jobs SET run_at = enqueued_at")  # now it is due
    (again,) = await eventually(hands.claim)
    assert again.job_id == ids[0], "it goes first, though its place is behind the others"
    for expected in [*ids[1:], *late]:
        (again,) = (await hands.exchange(ended(again), limit=10)).claimed
        assert again.job_id == expected


@pytest.mark.parametrize("keep", [None, 0.0])
async def test_a_cancelled_job_that_waits_to_run_again_frees_its_key(
    store: Store, hands: Hands, keep: float | None
) -> None:
    policy = Policy(keep=keep)
    ids = await enqueued(store, *[ordered(policy=policy)] * 3)
    one = await hands.claim_one()
    await hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=3600.0))
    assert await names(hands) == []
    await store.cancel(ids[:1])
    assert await names(hands) == ids[1:2]
    assert await holds(store)


async def test_a_job_that_is_kept_for_no_time_frees_its_key(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[ordered(policy=Policy(keep=0.0))] * 2)
    one = await hands.claim_one()
    await hands.hand_in(ended(one))
    assert await names(hands) == ids[1:]


@pytest.mark.parametrize("kind", [OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_a_job_that_has_ended_for_good_frees_its_key(
    store: Store, hands: Hands, kind: OutcomeKind
) -> None:
    ids = await enqueued(store, *[ordered()] * 2)
    one = await hands.claim_one()
    await hands.hand_in(ended(one, kind))
    assert await names(hands) == ids[1:]


async def test_a_requeued_job_comes_behind_the_one_that_runs(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[ordered()] * 3)
    one = await hands.claim_one()
    reply = await hands.exchange(ended(one, OutcomeKind.DEAD), limit=10)
    (two,) = reply.claimed
    await store.requeue([ids[0]])
    assert await names(hands) == []
    got = []
    for _ in range(2):
        (two,) = (await hands.exchange(ended(two), limit=10)).claimed
        got.append(two.job_id)
    assert got == [ids[2], ids[0]]


async def test_the_job_of_a_dead_worker_goes_first(store: Store) -> None:
    ids = await enqueued(store, *[ordered()] * 2)
    lost = await Hands.on(store, "lost")
    assert (await lost.claim_one()).job_id == ids[0]
    other = await Hands.on(store, "other")
    assert await names(other) == []
    await lost.vanish()
    assert await names(other) == []
    await store.reclaim(lost_worker)
    for expected in ids:
        claimed = await eventually(other.claim)
        assert [each.job_id for each in claimed] == [expected]
        await other.hand_in(ended(claimed[0]))


async def test_two_workers_start_one_job(store: Store, hands: Hands) -> None:
    await enqueued(store, *[ordered()] * 3)
    other = await Hands.on(store, "other")
    both = await names(hands) + await names(other)
    assert len(both) == 1


async def test_a_raised_count_does_not_break_the_order(store: Store, hands: Hands) -> None:
    await enqueued(store, *[ordered()] * 3)
    await store.set_limit(SetLimit(name="o", running=5))
    assert len(await names(hands)) == 1
    assert await names(hands) == []


async def test_a_full_second_limit_does_not_take_the_key(store: Store, hands: Hands) -> None:
    await store.declare_limits([NewLimit("a", LimitSpec(running=1))])
    both = [Need(permit_id("o", "k"), "o", "k", 1.0, True), need("a")]
    blocker = await enqueued(store, limited(need("a")))
    (first,) = await hands.claim()
    assert first.job_id == blocker[0]
    ids = await enqueued(store, limited(*both), limited(*both))
    assert await names(hands) == []
    await store.cancel(ids[:1])
    reply = await hands.exchange(ended(first), limit=10)
    assert [each.job_id for each in reply.claimed] == ids[1:]


@pytest.mark.parametrize("why", ["suspect", "paused"])
async def test_keys_whose_jobs_may_not_start_here_hold_up_no_other_and_keep_no_worker_busy(
    store: Store, hands: Hands, why: str
) -> None:
    """Others of their keys wait that might."""
    keys = [f"k{n}" for n in range(30)]
    await enqueued(store, *[ordered(key, tenant="paused") for key in keys])
    first = await hands.claim()
    assert len(first) == len(keys)
    await enqueued(store, *map(ordered, keys))
    paused, ends = ["paused"], [ended(one, OutcomeKind.SNOOZED, delay=0.0) for one in first]
    if why == "suspect":
        paused, ends = [], [crashed(one, CrashKind.BYSTANDER, incident=1) for one in first]
    await hands.hand_in(*ends)
    (free,) = await enqueued(store, ordered("free"))
    got = [await hands.exchange(limit=1, not_tenants=paused) for _ in range(9)]
    assert [each.job_id for reply in got for each in reply.claimed] == [free]
    assert got[-1].next_due != 0
    assert len(await hands.claim(solo=int(why == "suspect"))) == len(keys)
    assert await holds(store)


async def test_why_names_the_job_that_holds_the_key(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[ordered()] * 2)
    one = await hands.claim_one()
    await hands.hand_in(ended(one, OutcomeKind.SNOOZED, delay=3600.0))
    await hands.claim()
    place = await store.inspector.stream_place(ids[1])
    assert place is not None
    assert place.holder == ids[0]


async def test_a_job_that_waits_for_its_children_holds_its_key(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[ordered()] * 2)
    one = await hands.claim_one()
    await store.spawn([job()], spawned(one))
    (child,) = await hands.claim()
    assert await store.watch_children(one.job_id, one.token, [child.job_id])
    assert await hands.hand_in(waits(one)) == [Answer.ACCEPTED]
    assert await names(hands) == []
    assert await holds(store)
    reply = await hands.exchange(ended(child), limit=10)
    assert [each.job_id for each in reply.claimed] == ids[:1]
    reply = await hands.exchange(ended(reply.claimed[0]), limit=10)
    assert [each.job_id for each in reply.claimed] == ids[1:]


@pytest.mark.parametrize("act", ["cancel", "skip"])
async def test_a_cancelled_or_skipped_job_that_waits_for_its_children_frees_its_key(
    store: Store, hands: Hands, act: str
) -> None:
    ids = await enqueued(store, *[ordered()] * 2)
    one = await hands.claim_one()
    await store.spawn([job(delay=3600)], spawned(one))
    (child,) = await store.inspector.children(one.job_id, 1, 1)
    assert await store.watch_children(one.job_id, one.token, [child.id])
    await hands.hand_in(waits(one))
    assert await names(hands) == []
    await getattr(store, act)(ids[:1])
    assert await names(hands) == ids[1:]
    assert await holds(store)
