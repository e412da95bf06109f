"""A job that has not begun by the time at which it expires is cancelled, and never runs."""

from __future__ import annotations

import time

import msgspec
import pytest

from outlast.insight.verify import verify
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.model.schedule_plan import Overlap
from outlast.store.protocol import EXPIRE_MAX, Store
from outlast.store.rows import EXPIRED
from outlast.store.values import Answer, Cancelled, Requeued
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import (
    Hands,
    crashed,
    ended,
    enqueued,
    job,
    lost_worker,
    of_whole_rounds,
    row_of,
)
from tests.conformance.schedules_kit import firing, put_one, tick_job

PAST = 1_000_000_000.0  # seconds since 1970
HOUR = 3_600.0


async def is_expired(store: Store, job_id: int) -> bool:
    row = await row_of(store, job_id)
    assert (row.state is State.CANCELLED) == (row.reason == EXPIRED) == (row.ended_at is not None)
    return row.reason == EXPIRED


async def let_expire(url: str, *job_ids: int) -> None:
    """Set back when they expire, as if time had passed."""
    named = ", ".join(map(str, job_ids))
    async with raw(url) as file:
        assert await file.run(
            f"UPDATE outlast_jobs SET expires_at = enqueued_at WHERE id IN ({named})"
        )


async def test_a_job_that_has_expired_is_ended_by_the_claim_that_would_take_it(
    store: Store, hands: Hands
) -> None:
    late, good, other = await enqueued(
        store, job(expires_at=PAST), job(expires=HOUR), job(expires_at=time.time() + HOUR)
    )
    reply = await hands.exchange(limit=5)
    assert [one.job_id for one in reply.claimed] == [good, other]
    assert reply.expired == 1
    row = await row_of(store, late)
    assert (row.state, row.reason, row.expires_at) == (State.CANCELLED, EXPIRED, PAST)
    assert (row.attempt_count, row.failures, row.losses) == (0, 0, 0)
    assert await store.inspector.attempts(late) == []
    assert (await hands.exchange(limit=5)).expired == 0


async def test_when_a_job_expires_is_told_by_its_row(store: Store) -> None:
    first, second, never = await enqueued(
        store, job(expires=60.0), job(expires=60.0, key="k"), job()
    )
    for job_id in (first, second):
        row = await row_of(store, job_id)
        assert row.expires_at == pytest.approx(row.enqueued_at + 60.0, abs=0.01)
    assert (await row_of(store, never)).expires_at is None


async def test_jobs_alike_but_for_their_expiry_are_stored_each_with_its_own(store: Store) -> None:
    jobs = [job(), job(expires=60.0), job(expires_at=2e9), job(), job(expires=120.0)]
    rows = [await row_of(store, each) for each in await enqueued(store, *jobs)]
    left = [None if row.expires_at is None else row.expires_at - row.enqueued_at for row in rows]
    assert (left[0], left[3]) == (None, None)
    assert [left[1], left[4]] == pytest.approx([60.0, 120.0], abs=0.01)
    assert rows[2].expires_at == 2e9


async def test_scheduled_jobs_expire_too(store: Store) -> None:
    (scheduled,) = await enqueued(store, job(delay=HOUR, expires_at=PAST))
    assert await store.expire() == 1
    assert await is_expired(store, scheduled)


async def test_a_job_that_runs_does_not_expire(store_url: str, store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(expires=HOUR))
    claimed = await hands.claim_one()
    await let_expire(store_url, job_id)
    assert await store.expire() == 0
    assert (await row_of(store, job_id)).state is State.RUNNING
    await hands.hand_in(ended(claimed))
    assert (await row_of(store, job_id)).state is State.COMPLETED


BACK = [
    (OutcomeKind.CRASHED, Crash(kind=CrashKind.ERROR)),
    (OutcomeKind.CRASHED, Crash(kind=CrashKind.BYSTANDER)),
    (OutcomeKind.SNOOZED, None),
    (OutcomeKind.RELEASED, None),  # a drain, a pause --stop
]


@pytest.mark.parametrize(("kind", "crash"), BACK)
async def test_a_job_that_has_begun_and_goes_back_expires_no_more(
    store_url: str, store: Store, hands: Hands, kind: OutcomeKind, crash: Crash | None
) -> None:
    """A deploy ends no work."""
    late, later = await enqueued(store, job(expires=HOUR), job(expires=HOUR))
    first, second = await hands.claim()
    await let_expire(store_url, late)
    ends = [
        ended(first, kind, delay=0.0, crash=crash),
        ended(second, kind, delay=2 * HOUR, crash=crash),
    ]
    assert await hands.hand_in(*ends) == [Answer.ACCEPTED] * 2
    assert await store.expire() == 0
    for job_id in (late, later):
        row = await row_of(store, job_id)
        assert (row.state, row.expires_at, row.reason) == (State.QUEUED, None, None)
    assert (await row_of(store, later)).run_at > time.time() + 1.9 * HOUR
    assert (await hands.claim_one()).job_id == late
    assert not (await verify(store.inspector)).findings


async def test_a_job_whose_worker_dies_expires_no_more(
    store_url: str, store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, job(expires=HOUR, policy=Policy(backoff_first=0.0)))
    await hands.claim_one()
    await hands.vanish()
    await let_expire(store_url, job_id)
    (applied,) = await store.reclaim(lost_worker)
    assert applied.state is State.QUEUED
    assert (await (await Hands.on(store, "fresh")).claim_one()).job_id == job_id


async def test_a_job_that_was_taken_and_has_not_begun_expires_as_before(
    store_url: str, store: Store, hands: Hands
) -> None:
    late, good, lost = await enqueued(store, *[job(expires=HOUR) for _ in range(3)])
    first, second, _ = await hands.claim()
    await let_expire(store_url, late, lost)
    unbegun = [ended(each, OutcomeKind.RELEASED, began=False) for each in (first, second)]
    reply = await hands.exchange(*unbegun, limit=5)
    assert [one.job_id for one in reply.claimed] == [good]
    assert await store.reconcile(hands.me, [reply.claimed[0].token]) != []
    assert await store.expire() == 1
    assert (await is_expired(store, late), await is_expired(store, lost)) == (True, True)
    assert (await row_of(store, late)).attempt_count == 1


@pytest.mark.parametrize("undecodable", [False, True])
async def test_no_pause_of_ours_ends_a_job(
    store_url: str, store: Store, hands: Hands, undecodable: bool
) -> None:
    """Another release may decode it, another worker may have a slot: it is due in time for them."""
    (job_id,) = await enqueued(store, job(expires=60.0))
    for pause in (10.0, 20.0, 30.0, 30.0):  # half of what is left, from there on
        claimed = await hands.claim_one()
        if undecodable:
            end = crashed(claimed, CrashKind.UNDECODABLE)
        else:
            end = ended(claimed, OutcomeKind.RELEASED, delay=pause + (pause == 30.0), began=False)
        await hands.hand_in(end)
        row = await row_of(store, job_id)
        assert (row.state, row.expires_at is None) == (State.QUEUED, False)
        assert row.run_at - row.enqueued_at == pytest.approx(pause, abs=5.0)
        async with raw(store_url) as file:
            assert await file.run("UPDATE outlast_jobs SET run_at = enqueued_at")
    assert await store.expire() == 0
    await let_expire(store_url, job_id)
    assert await store.expire() == 1


async def test_a_claim_brings_the_time_that_is_left(store: Store, hands: Hands) -> None:
    await enqueued(store, job(expires=HOUR), job())
    first, second = await hands.claim()
    assert first.expires_in == pytest.approx(HOUR, abs=60.0)
    assert 0 < (first.expires_in or 0) <= HOUR
    assert (second.expires_in, first.begin_by) == (None, None)


async def test_a_job_that_expires_while_it_is_paused_never_runs(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(queue="slow", expires_at=PAST))
    reply = await hands.exchange(limit=5, not_queues=("slow",))
    assert (reply.claimed, reply.expired) == ([], 1)
    assert await is_expired(store, job_id)
    assert await hands.claim() == []


@of_whole_rounds
async def test_an_expired_job_never_runs_though_more_than_an_exchange_ends_expired_before(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, *[job(expires_at=PAST, queue="other")] * EXPIRE_MAX)
    late, good = await enqueued(store, job(expires_at=PAST + 1), job())
    replies = [await hands.exchange(limit=1) for _ in range(3)]
    assert [one.job_id for reply in replies for one in reply.claimed] == [good]
    assert [reply.expired for reply in replies] == [EXPIRE_MAX, 1, 0]
    assert await is_expired(store, late)
    assert (await row_of(store, late)).attempt_count == 0


async def test_a_cancel_is_no_expiry(store: Store, hands: Hands) -> None:
    asked, gave_up = await enqueued(store, job(expires=HOUR), job(expires=HOUR))
    assert await store.cancel([asked]) == {asked: Cancelled.CANCELLED}
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.CANCELLED))
    for job_id in (asked, gave_up):
        row = await row_of(store, job_id)
        assert (row.state, row.reason) == (State.CANCELLED, None)


async def test_a_requeued_job_expires_no_more(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(expires_at=PAST))
    assert await hands.claim() == []
    assert await store.requeue([job_id]) == {job_id: Requeued.REQUEUED}
    assert (await row_of(store, job_id)).expires_at is None
    assert (await hands.claim_one()).job_id == job_id


async def test_a_key_that_is_held_past_its_expiry_is_free(store: Store) -> None:
    """Also before a sweep has met its holder, and for another task."""
    first, gone = await enqueued(
        store,
        job(key="k", expires_at=PAST),
        job(key="l", expires_at=PAST, policy=Policy(keep=0.0)),
    )
    (second,) = await store.enqueue([job(key="k", task="app.other")])
    assert (second.created, await is_expired(store, first)) == (True, True)
    third, again = await store.enqueue([job(key="l", expires=HOUR), job(key="l")])
    assert (third.created, again.created, again.job_id) == (True, False, third.job_id)
    assert await store.inspector.job(gone) is None
    assert await store.expire() == 0


async def test_a_job_that_has_begun_holds_its_key(
    store_url: str, store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, job(key="k", expires=HOUR))
    claimed = await hands.claim_one()
    await let_expire(store_url, job_id)
    assert await enqueued(store, job(key="k")) == [job_id]
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    assert await enqueued(store, job(key="k")) == [job_id]


async def test_a_requeued_job_may_have_a_key_that_is_held_past_its_expiry(
    store: Store, hands: Hands
) -> None:
    (dead,) = await enqueued(store, job(key="k"))
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.DEAD))
    (holder,) = await enqueued(store, job(key="k", expires_at=PAST))
    assert await store.requeue([dead]) == {dead: Requeued.REQUEUED}
    assert await is_expired(store, holder)


async def test_a_tick_is_not_skipped_for_a_job_that_has_expired(store: Store) -> None:
    await put_one(store, call=job(expires=HOUR), overlap=Overlap.SKIP)
    (due,) = (await store.due_schedules()).schedules
    held = tick_job(due, due.next_tick)
    (holder,) = await enqueued(
        store, msgspec.structs.replace(held, expires=None, expires_at=PAST + 1, run_at=PAST)
    )
    (answer,) = await store.fire([firing(due, due.next_tick)])
    assert (answer.won, None in answer.jobs, answer.in_the_way) == (True, False, None)
    assert await is_expired(store, holder)


@of_whole_rounds
async def test_many_that_have_expired_do_not_keep_others_from_running(
    store: Store, hands: Hands
) -> None:
    many = [job(expires_at=PAST) for _ in range(EXPIRE_MAX + 10)]
    await enqueued(store, *many)
    (good,) = await enqueued(store, job(queue="other"))
    reply = await hands.exchange(limit=20)
    assert [one.job_id for one in reply.claimed] == [good]  # of ten that wait before it, none
    assert (reply.expired, reply.next_due) == (EXPIRE_MAX, 0.0)
    reply = await hands.exchange(limit=20)
    assert (reply.claimed, reply.expired, reply.next_due) == ([], 10, None)


async def test_a_sweep_ends_those_first_that_expired_first(store: Store) -> None:
    later, first = await enqueued(store, job(expires_at=PAST + 1), job(expires_at=PAST))
    assert await store.expire(limit=1) == 1
    assert (await is_expired(store, first), await is_expired(store, later)) == (True, False)
    assert [await store.expire(), await store.expire()] == [1, 0]
