"""Faults that users of other queues met with flows, by the number of the thread that reports each.

They are of three kinds: an end is not counted, or twice, since the count is kept apart from the
jobs; a parent waits for children that were never stored, or that are gone; what others still need
is deleted.
"""

from __future__ import annotations

import pytest

from outlast.errors import JobNotFound
from outlast.insight.verify import verify
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.values import Claimed, Wants
from tests.conformance.kit import Hands, crashed, ended, enqueued, eventually, job, lost_worker
from tests.conformance.test_children import parent, spawned, waits
from tests.conformance.test_dependencies import DIES, after, states

__all__ = ["parent"]  # a fixture

# -- an end is not counted, or twice


async def test_a_job_of_a_killed_worker_is_no_end_and_its_follower_waits_on(
    store: Store, hands: Hands
) -> None:
    """sidekiq#5143: a deployment killed a process, its job was lost, and the batch never ended."""
    first, then = await enqueued(store, job(), after(-1))
    lost = await Hands.on(store, "lost")
    await lost.claim_one()
    await lost.vanish()
    await store.reclaim(lost_worker)
    (again,) = await eventually(hands.claim)
    assert (again.job_id, await states(store, [then])) == (first, ["blocked"])
    await hands.hand_in(ended(again))
    assert (await hands.claim_one()).job_id == then
    assert (await verify(store.inspector)).findings == []


async def test_a_job_that_is_handed_back_counts_once(store: Store, hands: Hands) -> None:
    """sidekiq#4361: a shutdown counted a job that ran again, and the count went below zero."""
    one, two, then = await enqueued(store, job(), job(), after(-1, -2))
    mine = await hands.claim(2)
    await hands.hand_in(ended(mine[0], OutcomeKind.RELEASED), ended(mine[1]))
    again = await hands.claim_one()
    assert (again.job_id, await states(store, [then])) == (one, ["blocked"])
    reply = await hands.exchange(ended(again), limit=5)
    assert [each.job_id for each in reply.claimed] == [then]
    assert await states(store, [one, two]) == ["completed"] * 2


async def test_the_cancel_of_the_last_job_is_an_end(store: Store, hands: Hands) -> None:
    """oban#949: no callback ran if the last job of a batch was cancelled."""
    one, sentinel, then = await enqueued(
        store, job(), job(delay=3600), after(-1, -2, wants=Wants.ENDED)
    )
    await hands.hand_in(ended(await hands.claim_one()))
    assert await states(store, [one, then]) == ["completed", "blocked"]
    await store.cancel([sentinel])
    assert (await hands.claim_one()).job_id == then


async def test_a_member_whose_process_dies_for_good_is_an_end(store: Store, hands: Hands) -> None:
    """celery#2911: the kernel killed a process, nothing reported its task, and the chord hung."""
    one, then, alarm = await enqueued(
        store, job(policy=Policy(max_losses=0)), after(-1), after(-1, wants=Wants.DEAD)
    )
    lost = await Hands.on(store, "lost")
    await lost.claim_one()
    await lost.vanish()
    await store.reclaim(lost_worker)
    assert (await hands.claim_one()).job_id == alarm
    assert await states(store, [one, then]) == ["dead", "cancelled"]


# -- a parent waits for what was never stored, or is gone


@pytest.mark.parametrize("how", ["flow", "spawn"])
async def test_a_flow_that_was_interrupted_leaves_nothing_that_waits(
    store: Store, hands: Hands, parent: Claimed, how: str
) -> None:
    """celery#1700, trigger.dev#4397: what waits was there before all that it waited for, and an
    interruption in between left it waiting without end."""
    plan = [job(), after(-1), after(4711)]
    with pytest.raises(JobNotFound):
        await (store.enqueue(plan) if how == "flow" else store.spawn(plan, spawned(parent)))
    assert await hands.claim() == []
    assert await store.inspector.children(parent.job_id, 1, 9) == []
    assert await states(store, [parent.job_id + n for n in (1, 2, 3)]) == ["gone"] * 3


@pytest.mark.parametrize("keep", [None, 0.0])
async def test_a_child_that_fails_for_good_wakes_its_parent(
    store: Store, hands: Hands, parent: Claimed, keep: float | None
) -> None:
    """bullmq#3362, and bullmq#800 where the child is deleted as it ends: the parent hung."""
    (made,) = await store.spawn([job(policy=Policy(retries=0, keep=keep))], spawned(parent))
    child = await hands.claim_one()
    assert await store.watch_children(parent.job_id, parent.token, [made.job_id])
    await hands.hand_in(waits(parent))
    await hands.hand_in(crashed(child))
    assert (await hands.claim_one()).job_id == parent.job_id


async def test_a_requeued_parent_does_not_run_its_children_again(
    store: Store, hands: Hands, parent: Claimed
) -> None:
    """hatchet#4043: after a reset, children that had completed were sent again every 30 s."""
    done, fails = await store.spawn([job(), job(policy=DIES)], spawned(parent))
    mine = {each.job_id: each for each in await hands.claim(2)}
    await hands.hand_in(ended(mine[done.job_id]), crashed(mine[fails.job_id]))
    await hands.hand_in(ended(parent, OutcomeKind.DEAD))
    await store.requeue([parent.job_id, fails.job_id])
    ran = {each.job_id: each for each in await hands.claim(5)}
    assert ran.keys() == {parent.job_id, fails.job_id}
    (found,) = await store.find_steps([spawned(ran[parent.job_id]).step])
    assert found.value == spawned(parent).step.value
    children = await store.inspector.children(parent.job_id, 1, 9)
    assert [child.id for child in children] == [done.job_id, fails.job_id]


# -- what others still need is deleted


async def test_what_a_job_needs_stays_while_that_snoozes(store: Store, hands: Hands) -> None:
    """oban#722: the pruner deleted a completed job whose follower was still snoozing."""
    first, then = await enqueued(store, job(), after(-1, policy=Policy(inputs=(("x", False),))))
    await hands.hand_in(ended(await hands.claim_one(), result="7"))
    for _ in range(2):
        mine = await hands.claim_one()
        assert (mine.job_id, mine.results) == (then, ("7",))
        await hands.hand_in(ended(mine, OutcomeKind.SNOOZED, delay=0.0))
        await store.prune(jobs_older_than=-1, workers_older_than=1e9)
    await hands.hand_in(ended(await hands.claim_one()))
    await store.prune(jobs_older_than=-1, workers_older_than=1e9)
    assert await states(store, [first, then]) == ["gone"] * 2
