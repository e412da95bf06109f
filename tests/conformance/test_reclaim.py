"""Orphans: their attempts are closed as decided, once, and those of live workers stay."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from outlast.model.crash import Progress
from outlast.model.job import Policy, State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import Orphan, Report, Save
from tests.conformance.kit import (
    Hands,
    crashed,
    ended,
    enqueued,
    job,
    lost_worker,
    reclaimed,
    row_of,
)


async def test_there_are_no_orphans_while_their_worker_lives(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job())
    await hands.claim_one()
    await store.set_status(hands.me, WorkerStatus.DRAINING)
    assert not (await store.observe()).orphans
    assert await store.reclaim(lost_worker) == []


async def test_the_decision_sees_the_facts_of_the_orphan(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(max_losses=5, retries=2)))
    await hands.hand_in(crashed(await hands.claim_one(), delay=0.0))
    claimed = await hands.claim_one()
    await store.checkpoint([Save(job_id, claimed.token, 1, "7")])
    await store.progress([Report(job_id, claimed.token, Progress(fraction=0.5, stage="half"))])
    await hands.vanish()
    (orphan,) = await reclaimed(store)
    facts = orphan.facts
    assert (facts.job_id, facts.token, facts.failures, facts.losses) == (
        job_id,
        claimed.token,
        1,
        0,
    )
    assert facts.policy == Policy(max_losses=5, retries=2)
    assert (orphan.task, orphan.queue, orphan.attempts) == (claimed.task, claimed.queue, 2)
    assert (orphan.worker_id, orphan.worker, orphan.host) == (hands.me.worker_id, "w1", "h1")
    assert orphan.progress == Progress(fraction=0.5, stage="half")
    assert orphan.checkpoint_age is not None
    assert 0.0 <= orphan.checkpoint_age < 60.0
    assert (await row_of(store, job_id)).losses == 1


async def test_the_decision_sees_why_its_worker_is_called_gone(store: Store) -> None:
    causes: dict[str, DeathCause | None] = {"dead": DeathCause.LOCK_FILE, "left": None}
    for name, cause in causes.items():
        hands = await Hands.on(store, name)
        await enqueued(store)
        await hands.claim_one()
        if cause is None:
            await store.set_status(hands.me, WorkerStatus.STOPPED)
        else:
            await store.reap(await hands.seen(), cause)
    assert {each.worker: each.cause for each in await reclaimed(store)} == causes


@pytest.mark.parametrize(
    ("begun", "known"), [(None, False), (0, True), (1, True)], ids=["unknown", "none", "one of two"]
)
async def test_the_decision_sees_which_attempts_had_not_begun(
    store: Store, hands: Hands, begun: int | None, known: bool
) -> None:
    await enqueued(store, job(), job())
    tokens = [claimed.token for claimed in await hands.claim()]
    gone = await hands.seen()
    newest = tokens[0] if begun else begun
    gone = msgspec.structs.replace(gone, begun=newest)
    assert await store.reap(gone, DeathCause.LOCK_FILE)
    found = {each.facts.token: each for each in await reclaimed(store)}
    assert [found[token].began for token in tokens] == [not known or begun == 1, not known]
    assert found[tokens[1]].handed_back == (begun == 0)


async def test_an_attempt_of_a_living_worker_counts_as_begun(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    (orphan,) = await reclaimed(store, only=[(claimed.job_id, claimed.token)])
    assert orphan.began


async def test_a_reclaimed_job_runs_again_and_its_evidence_is_kept(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    await store.progress([Report(job_id, claimed.token, Progress(fraction=0.25))])
    await hands.vanish()
    await store.reclaim(lost_worker)
    (attempt,) = await store.inspector.attempts(job_id)
    other = await Hands.on(store, "w2")
    again = await other.claim_one()
    assert (attempt.token, attempt.outcome, attempt.charge) == (
        claimed.token,
        "lost_worker",
        "loss",
    )
    assert (attempt.worker, attempt.host) == ("w1", "h1")
    assert attempt.progress == Progress(fraction=0.25)
    assert attempt.crash is not None
    assert (again.job_id, again.number, again.losses, again.failures) == (job_id, 2, 1, 0)
    assert again.token > claimed.token


async def test_an_orphan_is_reclaimed_once_by_racing_reapers(
    store: Store, other_store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, *[job() for _ in range(30)])
    await hands.claim()
    await hands.vanish()
    first, second = await asyncio.gather(
        store.reclaim(lost_worker), other_store.reclaim(lost_worker)
    )
    rest = await store.reclaim(lost_worker)
    assert sorted(end.job_id for end in [*first, *second, *rest]) == ids
    for job_id in ids:
        assert len(await store.inspector.attempts(job_id)) == 1


async def test_the_longest_running_orphans_come_first_in_bounded_batches(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, *[job() for _ in range(5)])
    for _ in ids:
        await hands.claim_one()
        await asyncio.sleep(0.002)  # so that no two started at the same time
    await hands.vanish()
    batches = [await store.reclaim(lost_worker, limit=2) for _ in range(4)]
    assert [[end.job_id for end in batch] for batch in batches] == [
        ids[:2],
        ids[2:4],
        ids[4:],
        [],
    ]


async def test_an_orphan_that_was_reclaimed_meanwhile_is_left_alone(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    old = await hands.claim_one()
    await hands.hand_in(ended(old, OutcomeKind.RELEASED))
    claimed = await hands.claim_one()
    await hands.vanish()

    def stale(orphan: Orphan) -> Transition:
        return msgspec.structs.replace(lost_worker(orphan), token=old.token)

    assert await store.reclaim(stale) == []
    row = await row_of(store, claimed.job_id)
    assert (row.state, row.token) == (State.RUNNING, claimed.token)
    assert len(await store.inspector.attempts(claimed.job_id)) == 1


async def test_a_job_taken_over_is_no_orphan_of_its_first_worker(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    await hands.claim_one()
    await hands.vanish()
    await store.reclaim(lost_worker)
    other = await Hands.on(store, "w2")
    claimed = await other.claim_one()
    assert await store.reclaim(lost_worker) == []
    assert (await row_of(store, claimed.job_id)).token == claimed.token


async def test_jobs_of_a_stopped_worker_are_orphans(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await store.set_status(hands.me, WorkerStatus.STOPPED)
    assert (await store.observe()).orphans, "a look says so, and reclaims nothing"
    assert [end.token for end in await store.reclaim(lost_worker)] == [claimed.token]
    assert not (await store.observe()).orphans


async def test_a_look_shows_orphans_of_a_worker_that_has_just_been_found_gone(
    store: Store, hands: Hands
) -> None:
    other = await Hands.on(store, "w2")
    await enqueued(store, job(), job())
    await hands.claim_one()
    await other.claim_one()
    assert not (await store.observe()).orphans
    await other.vanish()
    assert (await store.observe()).orphans


async def test_a_cancel_request_beats_a_reclaim(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await hands.claim_one()
    await store.cancel([job_id])
    await hands.vanish()
    (applied,) = await store.reclaim(lost_worker)
    assert applied.state is State.CANCELLED
    assert (await row_of(store, job_id)).state is State.CANCELLED
    (attempt,) = await store.inspector.attempts(job_id)
    assert attempt.outcome == "lost_worker"


async def test_a_cancel_request_that_the_decision_has_not_seen_beats_it_too(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, job(), job())
    retried, snoozed = await hands.claim()
    await store.cancel([retried.job_id, snoozed.job_id])
    await hands.hand_in(crashed(retried), ended(snoozed, OutcomeKind.SNOOZED, delay=5.0))
    for claimed in (retried, snoozed):
        row = await row_of(store, claimed.job_id)
        assert (row.state, row.waiting) == (State.CANCELLED, False)
        assert row.ended_at is not None


async def test_a_completion_beats_a_cancel_request(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    await store.cancel([job_id])
    await hands.hand_in(ended(claimed, result="1"))
    assert (await row_of(store, job_id)).state is State.COMPLETED


async def test_a_job_lost_too_often_is_dead(store: Store) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(max_losses=1, backoff_first=0.0)))
    for name in ("w1", "w2"):
        hands = await Hands.on(store, name)
        await hands.claim_one()
        await hands.vanish()
        await store.reclaim(lost_worker)
    row = await row_of(store, job_id)
    assert (row.state, row.losses, row.failures) == (State.DEAD, 2, 0)
