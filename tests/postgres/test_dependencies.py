"""Ends and enqueues of what waits for them, overlapped at their worst moments."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.values import Answer, NamedStep, NewEvent, NewJob, Spawn, Upstream
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, on, row_of


def after(*upstream: int) -> NewJob:
    return job(after=tuple(Upstream(each) for each in upstream))


async def state_of(store: Store, job_id: int) -> State:
    return (await row_of(store, job_id)).state


async def test_an_end_within_an_enqueue_that_is_not_committed_yet_counts(
    store: Store, hands: Hands, session: Any
) -> None:
    """Neither of the two sees the other's rows."""
    (first,) = await enqueued(store)
    mine = await hands.claim_one()
    async with session.transaction():
        (late,) = await on(session).enqueue([after(first)])
        await hands.hand_in(ended(mine))
        assert await hands.claim(1) == []
    assert (await hands.claim_one()).job_id == late.job_id


async def test_an_enqueue_within_an_end_that_is_not_committed_yet_waits_for_it(
    store: Store, hands: Hands, session: Any
) -> None:
    """The end began before anyone waited, so its transaction leaves no notice; the job is held."""
    (first,) = await enqueued(store)
    mine = await hands.claim_one()
    async with session.transaction():
        assert await on(session).complete(first, mine.token, "7")
        (late,) = await enqueued(store, after(first))
        assert await hands.claim(1) == []
        assert await state_of(store, late) is State.BLOCKED
    assert (await hands.claim_one()).job_id == late


async def test_an_end_in_an_older_snapshot_fails_rather_than_to_miss_who_waits(
    store: Store, hands: Hands, session: Any
) -> None:
    (first,) = await enqueued(store)
    mine = await hands.claim_one()
    with pytest.raises(asyncpg.SerializationError):
        async with session.transaction(isolation="repeatable_read"):
            await session.fetchval("SELECT 1")  # its snapshot
            (late,) = await enqueued(store, after(first))
            assert await hands.claim(1) == []  # the first look: the end will leave a notice
            await on(session).complete(first, mine.token, "7")
    await hands.hand_in(ended(mine))
    assert (await hands.claim_one()).job_id == late


@pytest.mark.parametrize("sent", [False, True])
async def test_a_session_that_holds_a_blocked_job_delays_no_other(
    store: Store, hands: Hands, session: Any, sent: bool
) -> None:
    """Also with the notice of an event, which is done while that of the held job stays."""
    first, held, free = await enqueued(store, job(), after(-1), after(-1))
    mine = await hands.claim_one()
    if sent:
        await store.send_event(NewEvent("approve:1", "[1]"))
    async with session.transaction():
        await session.fetch("SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE", held)
        reply = await hands.exchange(ended(mine), limit=10)
        assert [each.job_id for each in reply.claimed] == [free]
    assert (await hands.claim_one()).job_id == held
    assert await state_of(store, first) is State.COMPLETED


async def test_an_upstream_job_that_is_gone_counts_as_ended_and_not_as_completed(
    store: Store, hands: Hands, session: Any
) -> None:
    """It was pruned between the enqueue and the first look."""
    (first,) = await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one()))
    async with session.transaction():
        (late,) = await on(session).enqueue([after(first)])
        assert await store.prune(jobs_older_than=0.0, workers_older_than=1e6) == 1
    assert await hands.claim(1) == []
    assert await state_of(store, late.job_id) is State.CANCELLED


@pytest.mark.parametrize("resolved", [True, False])
async def test_an_end_that_was_resolved_before_its_parent_watched_is_not_missed(
    store: Store, hands: Hands, session: Any, resolved: bool
) -> None:
    """An exchange resolves the notices of its own ends, before its commit: the parent, which begins
    to wait meanwhile, sees neither the end nor a notice."""
    await enqueued(store, job())
    parent = await hands.claim_one()
    await store.spawn([job()], Spawn(NamedStep(parent.job_id, parent.token, "spawn 0", "1"), 0))
    child = await hands.claim_one()
    async with session.transaction():
        assert await on(session).complete(child.job_id, child.token, "7")
        if resolved:
            await session.fetch("SELECT * FROM outlast_resolve_v1(100)")
        assert await store.watch_children(parent.job_id, parent.token, [child.job_id])
    await hands.hand_in(ended(parent, OutcomeKind.SNOOZED, blocks=True))
    again = await hands.claim_one()
    assert (again.job_id, again.number) == (parent.job_id, 2)


HAND_IN = "SELECT outlast_hand_in_v1(ARRAY[$1::bigint], ARRAY[$2::bigint], ARRAY['7'], NULL, 10)"


async def test_a_quiet_end_and_a_walk_that_do_not_see_each_other_open_the_job(
    store: Store, hands: Hands, session: Any
) -> None:
    """The exchange of the first end sees that nothing of it is watched; that of the last one walks
    to the first before that commits."""
    first, _, then = await enqueued(store, job(), job(), after(-1, -2))
    got = {each.job_id: each for each in await hands.claim(2)}
    async with session.transaction():
        await session.fetch(HAND_IN, first, got.pop(first).token)
        await hands.hand_in(*map(ended, got.values()))
        assert await hands.claim(1) == []
    assert (await hands.claim_one()).job_id == then


async def test_an_exchange_does_not_hold_the_job_that_is_watched_next(
    store: Store, hands: Hands, session: Any
) -> None:
    """Its end may come at once, and would be answered busy."""
    first, last, then = await enqueued(store, job(), job(), after(-1, -2))
    got = {each.job_id: each for each in await hands.claim(2)}
    async with session.transaction():
        await session.fetch(HAND_IN, last, got[last].token)
        await session.fetch("SELECT * FROM outlast_resolve_v1(100)")
        assert await hands.hand_in(ended(got[first])) == [Answer.ACCEPTED]
    assert (await hands.claim_one()).job_id == then


async def test_an_end_in_a_transaction_of_the_caller_is_followed_after_its_commit(
    store: Store, hands: Hands, session: Any
) -> None:
    first, then = await enqueued(store, job(), after(-1))
    mine = await hands.claim_one()
    async with session.transaction():
        assert await on(session).complete(first, mine.token, "7")
        assert await hands.claim(1) == []
    assert (await hands.claim_one()).job_id == then


async def test_ends_of_a_wide_group_leave_no_notices_and_a_walk_goes_on_where_it_stopped(
    store: Store, hands: Hands, session: Any
) -> None:
    count = 11_000
    ids = await enqueued(store, *[job()] * count, after(*range(-1, -1 - count, -1)))
    mine, last = await hands.claim_one(), ids[-2]
    await hands.hand_in(ended(mine))
    assert await session.fetch("SELECT FROM outlast_upstream_notices") == []
    await session.execute(
        "UPDATE outlast_jobs SET state = 'completed', ended_at = 0, position = NULL"
        " WHERE state = 'queued' AND id <> $1",
        last,
    )
    (mine,) = await hands.claim(1)
    assert mine.job_id == last
    await hands.hand_in(ended(mine))
    assert (await hands.claim_one()).job_id == ids[-1]


async def test_a_requeued_job_that_completes_while_what_it_has_cancelled_is_held_is_followed(
    store: Store, hands: Hands, session: Any
) -> None:
    """The look at the requeue comes after the second end, and takes the failure back."""
    first, then = await enqueued(store, job(policy=Policy(retries=0)), after(-1))
    await hands.hand_in(crashed(await hands.claim_one()))
    assert await hands.claim(1) == []
    assert await state_of(store, then) is State.CANCELLED
    async with session.transaction():
        await session.fetch("SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE", then)
        await store.requeue([first])
        reply = await hands.exchange(ended(await hands.claim_one()), limit=1)
        assert reply.claimed == []
    assert (await hands.claim_one()).job_id == then
