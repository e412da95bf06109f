"""A worker's row: registered, renewed, reconnected under a new epoch, reaped by observers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from outlast.insight.availability import Served
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from tests.conformance.kit import Hands, ended, enqueued, job, lost_worker, reap, row_of

LOCK = "/locks/w1-abcdefgh.lock"


async def test_a_registered_worker_has_its_row_and_its_lease(store: Store) -> None:
    hands = await Hands.on(store, "w1", queues=["a", "b"], release="1.2", lock_path=LOCK, lease=30)
    row = await hands.row()
    assert (row.name, row.host, row.pid, row.status) == ("w1", "h1", 4711, WorkerStatus.ACTIVE)
    assert (row.queues, row.tasks, row.release) == (["a", "b"], ["app.work"], "1.2")
    assert (row.epoch, hands.me.epoch, row.running) == (1, 1, 0)
    assert Path(row.lock_path or "").name == Path(LOCK).name
    assert 29.0 < row.lease_expires_at - row.heartbeat_at < 31.0
    assert row.stopped_at is None


async def test_a_beat_raises_the_counter_by_one(store: Store, hands: Hands) -> None:
    before = (await hands.seen()).beat
    assert (await store.heartbeat(hands.me)).renewed
    assert (await hands.seen()).beat == before + 1
    assert (await hands.row()).beat == before + 1


async def test_a_beat_brings_the_cancel_requests_of_own_jobs(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job(), job())
    mine, _ = await hands.claim(2)
    other = await Hands.on(store, "w2")
    foreign = await other.claim_one()
    await store.cancel([mine.job_id, foreign.job_id])
    assert (await store.heartbeat(hands.me)).cancels == [(mine.job_id, mine.token)]
    assert (await hands.exchange()).cancels == [(mine.job_id, mine.token)]


async def test_the_beat_of_a_reaped_worker_is_not_renewed(store: Store, hands: Hands) -> None:
    await hands.vanish()
    beat = await store.heartbeat(hands.me)
    assert (beat.renewed, beat.cancels) == (False, [])
    assert (await hands.row()).status is WorkerStatus.LOST


async def test_a_beat_is_renewed_under_an_old_epoch(store: Store, hands: Hands) -> None:
    assert await store.reconnect(hands.me, 0) is not None
    assert (await store.heartbeat(hands.me)).renewed


async def test_a_worker_that_beat_since_it_was_seen_is_not_reaped(
    store: Store, hands: Hands
) -> None:
    seen = await hands.seen()
    await store.heartbeat(hands.me)
    assert not await store.reap(seen)
    assert (await hands.row()).status is WorkerStatus.ACTIVE


async def test_a_worker_is_reaped_once(store: Store, hands: Hands) -> None:
    seen = await hands.seen()
    answers = await asyncio.gather(reap(store, seen), reap(store, seen))
    assert sorted(answers) == [False, True]
    assert (await store.observe()).workers == []
    row = await hands.row()
    assert row.stopped_at is not None


@pytest.mark.parametrize("cause", sorted(set(DeathCause) - {DeathCause.PRESENCE}), ids=str)
async def test_the_row_keeps_the_cause_of_death(
    store: Store, hands: Hands, cause: DeathCause
) -> None:
    assert await store.reap(await hands.seen(), cause)
    row = await hands.row()
    assert (row.status, row.cause) == (WorkerStatus.LOST, cause)


async def test_a_look_shows_the_age_of_the_last_beat(store: Store, hands: Hands) -> None:
    await store.heartbeat(hands.me)
    age = (await hands.seen()).age
    assert age is not None
    assert 0.0 <= age < 60.0


async def test_a_look_shows_each_live_worker_with_its_own_terms(store: Store) -> None:
    one = await Hands.on(store, "a", heartbeat=1.0, lease=3.0)
    two = await Hands.on(store, "b", heartbeat=2.0, lease=60.0, lock_path=LOCK, lock_inode=7)
    gone = await Hands.on(store, "c")
    await store.set_status(two.me, WorkerStatus.DRAINING)
    await store.set_status(gone.me, WorkerStatus.STOPPED)
    looks = (await store.observe()).workers
    assert [look.worker_id for look in looks] == [one.me.worker_id, two.me.worker_id]
    assert (looks[0].heartbeat, *(look.lease for look in looks)) == (1.0, 3.0, 60.0)
    assert (looks[1].boot_id, looks[1].lock_inode) == ("b1", 7)
    assert Path(looks[1].lock_path or "").name == Path(LOCK).name


async def test_a_reconnect_raises_the_epoch_and_ends_the_old_one(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    again = await store.reconnect(hands.me, 0)
    assert again is not None
    assert (again.worker_id, again.epoch > hands.me.epoch) == (hands.me.worker_id, True)
    old = await hands.exchange(limit=1)
    new = await Hands(store, again).exchange(limit=1)
    assert (old.valid, old.claimed) == (False, [])
    assert new.valid
    assert len(new.claimed) == 1


async def test_a_lost_worker_can_neither_reconnect_nor_change_its_status(
    store: Store, hands: Hands
) -> None:
    await hands.vanish()
    assert await store.reconnect(hands.me, 0) is None
    assert not await store.set_status(hands.me, WorkerStatus.DRAINING)
    assert not await store.set_status(hands.me, WorkerStatus.STOPPED)
    assert (await hands.row()).status is WorkerStatus.LOST


async def test_a_stopped_worker_claims_nothing_and_never_comes_back(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    assert await store.set_status(hands.me, WorkerStatus.STOPPED)
    exchanged = await hands.exchange(limit=1)
    assert (exchanged.valid, exchanged.claimed) == (False, [])
    assert not (await store.heartbeat(hands.me)).renewed
    assert not await store.set_status(hands.me, WorkerStatus.ACTIVE)


async def test_an_exchange_that_waits_for_a_reap_claims_nothing(
    store: Store, other_store: Store, hands: Hands
) -> None:
    await enqueued(store, *[job() for _ in range(20)])
    seen = await hands.seen()
    rival = Hands(other_store, hands.me)
    exchanged, reaped = await asyncio.gather(rival.exchange(limit=5), reap(store, seen))
    assert reaped
    late = await hands.exchange(limit=5)
    assert (late.valid, late.claimed) == (False, [])
    reclaimed = await store.reclaim(lost_worker)
    assert sorted(end.token for end in reclaimed) == sorted(c.token for c in exchanged.claimed)


async def test_announced_tasks_are_those_of_active_workers(store: Store, hands: Hands) -> None:
    gone = await Hands.on(store, "w2", tasks=["gone"])
    await store.announce(hands.me, ["a", "b"], {"c": ["gpu"]})
    await store.set_status(gone.me, WorkerStatus.STOPPED)
    served = Served(await store.inspector.workers())
    assert [task for task in ("a", "b", "c", "gone") if served.has(task, "q")] == ["a", "b"]
    row = await hands.row()
    assert (row.tasks, row.lacks) == (["a", "b"], {"c": ["gpu"]})


async def test_reconcile_releases_attempts_unknown_to_the_worker(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, job(), job())
    known, unknown = await hands.claim()
    assert await store.reconcile(hands.me, [known.token]) == [(unknown.job_id, unknown.token)]
    assert await store.reconcile(hands.me, [known.token]) == []
    (attempt,) = await store.inspector.attempts(unknown.job_id)
    assert (attempt.outcome, attempt.charge) == ("released", "none")
    again = await hands.claim_one()
    assert again.job_id == unknown.job_id
    assert again.token > unknown.token
    assert (again.failures, again.losses) == (0, 0)


async def test_reconcile_cancels_what_was_asked_to_be_cancelled(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await hands.claim_one()
    await store.cancel([job_id])
    assert len(await store.reconcile(hands.me, [])) == 1
    row = await row_of(store, job_id)
    assert row.state is State.CANCELLED


async def test_reconcile_needs_the_current_epoch(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    again = await store.reconnect(hands.me, claimed.token)
    assert again is not None
    assert await store.reconcile(hands.me, []) == []
    assert await store.reconcile(again, []) == [(claimed.job_id, claimed.token)]


async def test_reconcile_leaves_other_workers_alone(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job())
    await hands.claim_one()
    other = await Hands.on(store, "w2")
    claimed = await other.claim_one()
    assert len(await store.reconcile(hands.me, [])) == 1
    assert (await other.hand_in(ended(claimed, OutcomeKind.RELEASED)))[0].value == "accepted"
