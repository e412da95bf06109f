"""Checkpoints go forward only, survive the attempt, and forgive losses when they advance."""

from __future__ import annotations

import pytest

from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.values import Answer, Claimed, Report, Save
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, lost_worker, row_of


def save(claimed: Claimed, number: int, value: str) -> Save:
    return Save(claimed.job_id, claimed.token, number, value)


async def test_the_next_attempt_begins_at_the_checkpoint(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    assert await store.checkpoint([save(claimed, 1, '{"commit":400}')]) == [Answer.ACCEPTED]
    row = await row_of(store, claimed.job_id)
    assert row.checkpoint == '{"commit":400}'
    assert row.checkpoint_at is not None
    await hands.vanish()
    await store.reclaim(lost_worker)
    again = await (await Hands.on(store, "w2")).claim_one()
    assert again.checkpoint == '{"commit":400}'


async def test_an_older_save_that_comes_later_does_not_go_back(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    assert await store.checkpoint([save(claimed, 6, "6")]) == [Answer.ACCEPTED]
    assert await store.checkpoint([save(claimed, 5, "5")]) == [Answer.ALREADY]
    assert await store.checkpoint([save(claimed, 6, "6")]) == [Answer.ALREADY]
    assert (await row_of(store, claimed.job_id)).checkpoint == "6"
    assert await store.inspector.refusals() == []


async def test_save_numbers_start_again_with_each_attempt(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await store.checkpoint([save(claimed, 9, "9")])
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    again = await hands.claim_one()
    assert again.checkpoint == "9"
    assert await store.checkpoint([save(again, 1, "10")]) == [Answer.ACCEPTED]
    assert (await row_of(store, again.job_id)).checkpoint == "10"


async def test_a_batch_of_saves_is_answered_one_by_one(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job(), job())
    one, two, three = await hands.claim()
    await hands.hand_in(ended(three))
    await store.checkpoint([save(two, 2, "2")])
    answers = await store.checkpoint([save(one, 1, "1"), save(two, 1, "1"), save(three, 1, "1")])
    assert answers == [Answer.ACCEPTED, Answer.ALREADY, Answer.REFUSED]


async def test_losses_are_as_the_last_save_says(store: Store, hands: Hands) -> None:
    """The store cannot compare checkpoints: encrypted ones differ each time."""
    await enqueued(store, job(policy=Policy(backoff_first=0.0)))
    first = await hands.claim_one()
    await store.checkpoint([save(first, 1, '"here"')])
    await hands.vanish()
    await store.reclaim(lost_worker)
    second = await (await Hands.on(store, "w2")).claim_one()
    elsewhere = save(second, 1, '"elsewhere"')
    back = Save(second.job_id, second.token, 2, '"here"', second.losses)
    for each, losses in ((elsewhere, 0), (back, 1), (elsewhere, 1)):
        await store.checkpoint([each])
        assert (await row_of(store, second.job_id)).losses == losses


async def lost_once_then_saved(store: Store, hands: Hands, policy: Policy) -> Claimed:
    """Return an attempt whose save has forgiven a loss unheard by its worker."""
    await enqueued(store, job(policy=policy))
    await hands.hand_in(crashed(await hands.claim_one(), CrashKind.BYSTANDER, delay=0.0))
    claimed = await hands.claim_one()
    assert claimed.losses == 1
    assert await store.checkpoint([save(claimed, 1, "1")]) == [Answer.ACCEPTED]
    return claimed


@pytest.mark.parametrize("kind", [OutcomeKind.RELEASED, OutcomeKind.COMPLETED])
async def test_an_end_without_a_loss_leaves_what_a_save_has_forgiven(
    store: Store, hands: Hands, kind: OutcomeKind
) -> None:
    claimed = await lost_once_then_saved(store, hands, Policy())
    await hands.hand_in(ended(claimed, kind))
    assert (await row_of(store, claimed.job_id)).losses == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_losses_forgiven_by_an_unanswered_save_do_not_end_the_job(
    store: Store, hands: Hands, cancelled: bool
) -> None:
    claimed = await lost_once_then_saved(store, hands, Policy(max_losses=1))
    if cancelled:
        await store.cancel([claimed.job_id])
    end = crashed(claimed, CrashKind.LOST_LEASE)
    assert end.state is State.DEAD
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    row = await row_of(store, claimed.job_id)
    assert (row.state, row.losses) == (State.CANCELLED if cancelled else State.QUEUED, 1)
    if not cancelled:
        again = await hands.claim_one()
        assert again.checkpoint == "1"
        await hands.hand_in(crashed(again, CrashKind.LOST_LEASE))
        assert (await row_of(store, claimed.job_id)).state is State.DEAD


async def test_progress_is_shown_kept_with_its_attempt_and_reset_for_the_next(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    told = Progress(fraction=0.4, stage="counting", message="commit 400 of 1000")
    assert await store.progress([Report(job_id, claimed.token, told)]) == [Answer.ACCEPTED]
    assert (await row_of(store, job_id)).progress == told
    await hands.hand_in(crashed(claimed, delay=0.0))
    await hands.claim_one()
    assert (await row_of(store, job_id)).progress is None
    assert (await store.inspector.attempts(job_id))[0].progress == told


async def test_evidence_has_the_age_of_the_checkpoint(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job())
    saved, unsaved = await hands.claim()
    await store.checkpoint([save(saved, 1, "1")])
    await hands.hand_in(crashed(saved), crashed(unsaved))
    (with_age,) = await store.inspector.attempts(saved.job_id)
    (without,) = await store.inspector.attempts(unsaved.job_id)
    assert with_age.checkpoint_age is not None
    assert 0.0 <= with_age.checkpoint_age < 60.0
    assert without.checkpoint_age is None


async def test_empty_batches_are_accepted(store: Store) -> None:
    assert await store.checkpoint([]) == []
    assert await store.progress([]) == []
