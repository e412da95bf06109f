"""A job that has not begun by the time at which it expires is cancelled, and never runs."""

from __future__ import annotations

import time

import pytest

from outlast.insight.verify import verify
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.model.suspects import Suspicion
from outlast.store.protocol import EXPIRE_MAX, Store
from outlast.store.rows import EXPIRED, StoredJob
from outlast.store.values import Answer, Cancelled, Requeued
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, lost_worker

PAST = 1_000_000_000.0  # seconds since 1970
HOUR = 3_600.0


async def row_of(store: Store, job_id: int) -> StoredJob:
    row = await store.inspector.job(job_id)
    assert row is not None
    return row


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


async def test_scheduled_jobs_and_retries_expire_too(
    store_url: str, store: Store, hands: Hands
) -> None:
    (retried,) = await enqueued(store, job(expires=HOUR))
    assert await hands.hand_in(crashed(await hands.claim_one(), delay=HOUR / 2))
    (scheduled,) = await enqueued(store, job(delay=HOUR, expires_at=PAST))
    await let_expire(store_url, retried)
    assert await store.expire() == 2
    assert await is_expired(store, scheduled)
    assert await is_expired(store, retried)
    row = await row_of(store, retried)
    assert (row.failures, row.attempt_count) == (1, 1)
    assert len(await store.inspector.attempts(retried)) == 1


async def test_suspects_expire_too(store_url: str, store: Store, hands: Hands) -> None:
    (suspect,) = await enqueued(store, job(expires=HOUR))
    claimed = await hands.claim_one()
    suspicion = Suspicion(claimed.token, claimed.token)
    await hands.hand_in(crashed(claimed, CrashKind.BYSTANDER, suspicion=suspicion))
    assert (await row_of(store, suspect)).solo == 1
    await let_expire(store_url, suspect)
    reply = await hands.exchange(limit=5, solo=1)
    assert (reply.claimed, reply.expired) == ([], 1)
    assert await is_expired(store, suspect)


async def test_a_job_that_runs_does_not_expire(store_url: str, store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(expires=HOUR))
    claimed = await hands.claim_one()
    await let_expire(store_url, job_id)
    assert await store.expire() == 0
    assert (await row_of(store, job_id)).state is State.RUNNING
    await hands.hand_in(ended(claimed))
    assert (await row_of(store, job_id)).state is State.COMPLETED


async def test_a_job_that_goes_back_after_it_expired_does_not_run_again(
    store_url: str, store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, job(expires=HOUR))
    claimed = await hands.claim_one()
    await let_expire(store_url, job_id)
    reply = await hands.exchange(ended(claimed, OutcomeKind.RELEASED), limit=5)
    assert (reply.answers, reply.claimed) == ([Answer.ACCEPTED], [])
    assert await is_expired(store, job_id)


@pytest.mark.parametrize("kind", [OutcomeKind.CRASHED, OutcomeKind.SNOOZED, OutcomeKind.RELEASED])
async def test_a_job_that_would_begin_again_after_it_expires_ends_at_once(
    store: Store, hands: Hands, kind: OutcomeKind
) -> None:
    in_time, late = await enqueued(store, job(expires=HOUR), job(expires=HOUR, key="k"))
    first, second = await hands.claim()
    crash = Crash(kind=CrashKind.ERROR) if kind is OutcomeKind.CRASHED else None
    ends = [
        ended(first, kind, delay=HOUR / 2, crash=crash),
        ended(second, kind, delay=2 * HOUR, crash=crash),
    ]
    assert await hands.hand_in(*ends) == [Answer.ACCEPTED] * 2
    assert (await is_expired(store, in_time), await is_expired(store, late)) == (False, True)
    row = await row_of(store, late)
    assert (row.started_at, row.attempt_count) == (None, 1)
    assert row.failures == (kind is OutcomeKind.CRASHED)
    (attempt,) = await store.inspector.attempts(late)
    assert attempt.outcome == ends[1].outcome
    assert await enqueued(store, job(key="k")) != [late]
    assert not (await verify(store.inspector)).findings


async def test_a_pause_that_has_grown_beyond_the_expiry_ends_a_job(
    store_url: str, store: Store, hands: Hands
) -> None:
    """Only the store knows how far the pause of a job that no release can decode has grown."""
    (job_id,) = await enqueued(store, job(expires=35.0))
    async with raw(store_url) as file:
        for pause in (10.0, 20.0, 40.0):
            assert await file.run(
                f"UPDATE outlast_jobs SET run_at = enqueued_at WHERE id = {job_id}"
            )
            await hands.hand_in(crashed(await hands.claim_one(), CrashKind.UNDECODABLE))
            assert await is_expired(store, job_id) == (pause > 35.0)


async def test_a_cancel_that_meets_a_late_retry_is_a_cancel(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(expires=HOUR))
    claimed = await hands.claim_one()
    await store.cancel([job_id])
    await hands.hand_in(crashed(claimed, delay=2 * HOUR))
    row = await row_of(store, job_id)
    assert (row.state, row.reason) == (State.CANCELLED, None)


async def test_a_job_that_expires_while_its_worker_is_down_does_not_run_again(
    store_url: str, store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, job(expires=HOUR))
    await hands.claim_one()
    await hands.vanish()
    await let_expire(store_url, job_id)
    (applied,) = await store.reclaim(lost_worker)
    assert (applied.state, applied.delay) == (State.CANCELLED, 0.0)
    fresh = await Hands.on(store, "fresh")
    assert await fresh.claim() == []
    assert await is_expired(store, job_id)
    assert (await row_of(store, job_id)).losses == 1


async def test_a_job_that_expires_while_it_is_paused_never_runs(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(queue="slow", expires_at=PAST))
    reply = await hands.exchange(limit=5, not_queues=("slow",))
    assert (reply.claimed, reply.expired) == ([], 1)
    assert await is_expired(store, job_id)
    assert await hands.claim() == []


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


async def test_a_job_that_has_expired_frees_its_key(store: Store) -> None:
    (job_id,) = await enqueued(store, job(key="k", expires_at=PAST))
    assert await enqueued(store, job(key="k")) == [job_id]
    assert await store.expire() == 1
    assert await enqueued(store, job(key="k")) != [job_id]


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
