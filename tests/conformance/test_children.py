"""Children of attempts: stored once, and no end of theirs is missed by the parent that waits."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import LostLease
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import Store
from outlast.store.rows import CHILDREN_BYTES
from outlast.store.values import Answer, Cancelled, Claimed, NamedStep, Spawn, Wants
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, of_whole_rounds
from tests.conformance.test_dependencies import after, states

_UNKEPT = Policy(keep=0)


def spawned(by: Claimed, first: int = 0) -> Spawn:
    return Spawn(NamedStep(by.job_id, by.token, f"spawn {first}", '"work"'), first)


def waits(claimed: Claimed, **fields: Any) -> Transition:
    """The end of an attempt that waits for its children."""
    return ended(claimed, OutcomeKind.SNOOZED, blocks=True, **fields)


@pytest.fixture
async def parent(store: Store, hands: Hands) -> Claimed:
    await enqueued(store, job())
    return await hands.claim_one()


async def test_an_attempt_spawns_once_and_a_stale_one_nothing(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    made = await store.spawn([job()] * 3, spawned(parent))
    for first in (0, 3):
        with pytest.raises(LostLease):
            await store.spawn([job()] * 3, spawned(parent) if first == 0 else _stale(parent))
    children = await store.inspector.children(parent.job_id, 1, 10)
    assert [child.id for child in children] == [each.job_id for each in made]
    assert len(await hands.claim()) == 3


async def test_a_read_of_children_has_few_bytes_of_results(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    large = f'"{"x" * (CHILDREN_BYTES // 5 * 2)}"'
    made = await store.spawn([job()] * 5, spawned(parent))
    for each in await hands.claim():
        await hands.hand_in(ended(each, result=large))
    reads: list[int] = []
    while sum(reads) < len(made):
        rows = await store.inspector.children(parent.job_id, sum(reads) + 1, len(made))
        assert {row.result for row in rows} == {large}
        reads.append(len(rows))
    assert reads == [2, 2, 1]


def _stale(claimed: Claimed) -> Spawn:
    return Spawn(NamedStep(claimed.job_id, claimed.token - 1, "spawn 3", "1"), 3)


@pytest.mark.parametrize("when", ["before", "between", "resolved", "after"])
async def test_no_end_of_a_child_is_missed(
    store: Store, hands: Hands, parent: Claimed, when: str
) -> None:
    """Before the parent watches, between that and its end, with a claim in between, after it."""
    await store.spawn([job(), job()], spawned(parent))
    one, two = await hands.claim(2)
    await hands.hand_in(ended(one))
    if when == "before":
        await hands.hand_in(ended(two))
    ids = [one.job_id, two.job_id]
    assert await store.watch_children(parent.job_id, parent.token, ids)
    if when in {"between", "resolved"}:
        await hands.hand_in(ended(two))
    if when == "resolved":
        assert await hands.claim() == []
    assert await hands.hand_in(waits(parent)) == [Answer.ACCEPTED]
    if when == "after":
        assert await states(store, [parent.job_id]) == ["blocked"]
        assert await hands.claim() == []
        await hands.hand_in(ended(two))
    again = await hands.claim_one()
    assert (again.job_id, again.number, again.failures) == (parent.job_id, 2, 0)
    assert await store.inspector.unresolved() == []


async def test_only_the_watched_children_hold_the_parent(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    await store.spawn([job(), job(delay=3600)], spawned(parent))
    (one,) = await hands.claim()
    ids = [child.id for child in await store.inspector.children(parent.job_id, 1, 2)]
    for watched in (ids, ids[:1]):  # the last call counts
        assert await store.watch_children(parent.job_id, parent.token, watched)
    assert not await store.watch_children(parent.job_id, parent.token - 1, ids)
    assert await store.inspector.unresolved() == []
    reply = await hands.exchange(waits(parent), ended(one), limit=5)
    assert [each.job_id for each in reply.claimed] == [parent.job_id]


async def test_a_cancel_beats_the_wait_and_a_child_is_kept_for_its_parent(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    await store.spawn([job(policy=_UNKEPT), job(delay=3600)], spawned(parent))
    (one,) = await hands.claim()
    await hands.hand_in(ended(one, result="7"))
    await store.prune(jobs_older_than=-1, workers_older_than=1e9)
    children = await store.inspector.children(parent.job_id, 1, 2)
    assert [child.result for child in children] == ["7", None]
    assert await store.watch_children(parent.job_id, parent.token, [children[1].id])
    assert await store.cancel([parent.job_id]) == {parent.job_id: Cancelled.REQUESTED}
    await hands.hand_in(waits(parent))
    assert await states(store, [parent.job_id]) == ["cancelled"]
    await store.prune(jobs_older_than=-1, workers_older_than=1e9)
    assert await states(store, [one.job_id]) == ["gone"]


async def test_a_job_that_begins_from_scratch_may_spawn_again(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    await store.spawn([job(delay=3600)], spawned(parent))
    await hands.hand_in(ended(parent, OutcomeKind.DEAD))
    await store.requeue([parent.job_id], from_scratch=True)
    again = await hands.claim_one()
    assert await store.inspector.children(parent.job_id, 1, 9) == []
    assert len(await store.spawn([job()], spawned(again))) == 1


@pytest.mark.parametrize("end", ["dead", "cancelled"])
async def test_children_that_have_not_begun_end_with_their_parent_and_return_with_it(
    store: Store, hands: Hands, parent: Claimed, end: str
) -> None:
    (theirs,) = await enqueued(store, job(key="theirs", delay=3600))
    again = Policy(backoff_first=0, backoff_max=0)
    plan = [job(policy=again), job(), after(-2), after(-1, wants=Wants.DEAD), job(delay=3600)]
    made = await store.spawn([*plan, job(key="theirs")], spawned(parent))
    begun, done, then, never, late, shared = [each.job_id for each in made]
    assert shared == theirs
    mine = await hands.claim(2)
    assert [each.job_id for each in mine] == [begun, done]
    await hands.hand_in(crashed(mine[0]), ended(mine[1]))
    await hands.hand_in(ended(parent, OutcomeKind(end)))
    running = await hands.claim_one()  # the one that has begun goes on
    assert running.job_id == begun
    await hands.settle()
    assert await states(store, [then, never, late, shared]) == ["cancelled"] * 3 + ["queued"]
    row = await store.inspector.job(then)
    assert row is not None
    assert row.reason == "upstream"

    await store.requeue([parent.job_id])
    reply = await hands.claim(5)
    assert {each.job_id for each in reply} == {parent.job_id, then}
    assert await states(store, [never, late, begun]) == ["blocked", "queued", "running"]
    assert await store.inspector.unresolved() == []


@of_whole_rounds
async def test_many_children_end_in_rounds(store: Store, hands: Hands, parent: Claimed) -> None:
    count = 1_200  # more than two rounds
    made = await store.spawn([job(delay=3600)] * count, spawned(parent))
    await hands.hand_in(ended(parent, OutcomeKind.DEAD))
    for _ in range(4):
        assert await hands.claim() == []
    ids = [each.job_id for each in made]
    assert {*await states(store, ids[::100])} == {"cancelled"}
    await store.requeue([parent.job_id])
    await hands.claim(5)
    assert {*await states(store, ids[::100])} == {"queued"}


async def test_a_job_that_returns_later_than_what_it_was_cancelled_for_is_told_apart(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    """Else a requeued parent, which may run before, would take it for cancelled, and die of it."""
    made = await store.spawn([job(delay=3600), *[after(-1)] * 300], spawned(parent))
    first, last = made[0].job_id, made[-1].job_id
    await hands.hand_in(ended(parent, OutcomeKind.DEAD))
    while {*await states(store, [each.job_id for each in made])} != {"cancelled"}:
        assert await hands.claim() == []
    assert not await store.inspector.returns(last), "its parent is dead"
    await store.requeue([parent.job_id])  # PostgreSQL leaves those behind the first to later claims
    assert await store.inspector.returns(last)
    while await states(store, [first]) == ["cancelled"]:  # where a round brings back few
        await hands.claim()
    await store.cancel([first])
    while await states(store, [last]) != ["cancelled"]:
        await hands.claim()
    assert not await store.inspector.returns(last), "one before it was cancelled by a person"


async def test_a_child_whose_dead_parent_is_discarded_does_not_return(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    """Else a call that waits for its result would never end."""
    made = await store.spawn([job(delay=3600), after(-1)], spawned(parent))
    ids = [each.job_id for each in made]
    await hands.hand_in(ended(parent, OutcomeKind.DEAD))
    while {*await states(store, ids)} != {"cancelled"}:
        assert await hands.claim() == []
    assert await store.discard([parent.job_id]) == {parent.job_id}
    assert [each for each in ids if await store.inspector.returns(each)] == []


async def test_a_cancelled_job_that_no_requeue_brings_back_does_not_return(
    store: Store, hands: Hands
) -> None:
    """Its key may be another's, a death that it waited for did not come, its time is over, …"""
    plan = [job(), after(-1, key="k"), after(-2), after(-1), job(), after(-5, wants=Wants.DEAD)]
    plan += [job(), after(-7), job(), after(-9), after(-1, expires=0.0)]
    ids = await enqueued(store, *plan)
    first, keyed, behind, plain, _, unwanted, lost, left, _, late, expired = ids
    ends = [OutcomeKind.DEAD, OutcomeKind.COMPLETED, OutcomeKind.DEAD, OutcomeKind.CANCELLED]
    claimed = await hands.claim(4)
    await hands.hand_in(*(ended(each, end) for each, end in zip(claimed, ends, strict=True)))
    waiting = [keyed, behind, plain, unwanted, left, late, expired]
    while {*await states(store, waiting)} != {"cancelled"}:
        assert await hands.claim() == []
    assert not await store.inspector.returns(plain), "what it waits for is dead"
    await store.requeue([first])
    assert await store.discard([lost]) == {lost}
    returns = [each for each in waiting if await store.inspector.returns(each)]
    assert returns == [plain]


@pytest.mark.parametrize("looked", [False, True])
async def test_a_child_that_was_there_is_kept_until_its_parent_has_ended(
    store: Store, hands: Hands, parent: Claimed, looked: bool
) -> None:
    """As one by its key, whose own call lets it go as it ends."""
    await enqueued(store, job(key="k", policy=_UNKEPT))
    (child,) = await store.spawn([job(key="k")], spawned(parent))
    mine = await hands.claim_one()
    await hands.hand_in(ended(mine, result="7"))
    if looked:
        await hands.exchange()
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    (found,) = await store.inspector.children(parent.job_id, 1, 1)
    assert (found.id, found.state, found.result) == (child.job_id, "completed", "7")
    await hands.hand_in(ended(parent))
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    assert await states(store, [child.job_id]) == ["gone"]
