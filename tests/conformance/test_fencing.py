"""Every write about an attempt carries its token and is refused once that is not current."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from outlast.base.clock import SYSTEM
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import REFUSALS_KEPT, Store
from outlast.store.values import Answer, Claimed, Report, Save
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, lost_worker, row_of


async def taken_over(store: Store, hands: Hands) -> tuple[Claimed, Claimed, Hands]:
    """A job whose first worker was presumed dead and whose second one runs it."""
    await enqueued(store, job(policy=Policy(max_losses=99)))
    late = await hands.claim_one()
    await hands.vanish()
    assert await store.reclaim(lost_worker)
    other = await Hands.on(store, "w2")
    current = await other.claim_one()
    assert current.job_id == late.job_id
    assert current.token > late.token
    return late, current, other


ENDS: list[tuple[str, Callable[[Claimed], Transition]]] = [
    ("completed", lambda claimed: ended(claimed, result='"late"')),
    ("crashed", crashed),
    ("snoozed", lambda claimed: ended(claimed, OutcomeKind.SNOOZED, delay=1.0)),
    ("released", lambda claimed: ended(claimed, OutcomeKind.RELEASED)),
    ("cancelled", lambda claimed: ended(claimed, OutcomeKind.CANCELLED)),
    ("dead", lambda claimed: ended(claimed, OutcomeKind.DEAD)),
]
each_end = pytest.mark.parametrize("end", [end for _, end in ENDS], ids=[name for name, _ in ENDS])


@each_end
async def test_a_late_end_is_refused_and_changes_nothing(
    store: Store, hands: Hands, end: Callable[[Claimed], Transition]
) -> None:
    late, current, other = await taken_over(store, hands)
    before = await row_of(store, late.job_id)
    attempts = await store.inspector.attempts(late.job_id)
    assert await hands.hand_in(end(late)) == [Answer.REFUSED]
    assert await row_of(store, late.job_id) == before
    assert await store.inspector.attempts(late.job_id) == attempts
    assert await other.hand_in(ended(current)) == [Answer.ACCEPTED]


async def test_a_late_save_or_report_is_refused_and_changes_nothing(
    store: Store, hands: Hands
) -> None:
    late, _, _ = await taken_over(store, hands)
    before = await row_of(store, late.job_id)
    save = Save(late.job_id, late.token, 7, '{"late":true}')
    assert await store.checkpoint([save]) == [Answer.REFUSED]
    report = Report(late.job_id, late.token, Progress(fraction=0.9))
    assert await store.progress([report]) == [Answer.REFUSED]
    assert await row_of(store, late.job_id) == before


async def test_refusals_are_recorded_with_who_what_and_how_late(store: Store, hands: Hands) -> None:
    late, _, _ = await taken_over(store, hands)
    await hands.hand_in(ended(late))
    await store.checkpoint([Save(late.job_id, late.token, 1, "1")])
    await store.progress([Report(late.job_id, late.token, Progress(fraction=0.5))])
    newest, oldest = await store.inspector.refusals(late.job_id)
    assert (newest.verb, oldest.verb) == ("checkpoint", "end")
    for refusal in (newest, oldest):
        assert (refusal.job_id, refusal.token) == (late.job_id, late.token)
        assert refusal.late_by is not None
        assert 0.0 <= refusal.late_by < 60.0
        assert refusal.at > 1_000_000_000.0


async def test_refusals_of_unknown_attempts_have_no_lateness(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    save = Save(job_id, claimed.token + 500, 1, "1")
    assert await store.checkpoint([save]) == [Answer.REFUSED]
    (refusal,) = await store.inspector.refusals()
    assert refusal.late_by is None


async def test_the_record_of_refusals_is_bounded(store: Store) -> None:
    saves = [Save(1, token, 1, "1") for token in range(1, 501)]
    for _ in range(3):
        await store.checkpoint(saves)
    refusals = await store.inspector.refusals(limit=10_000)
    assert REFUSALS_KEPT <= len(refusals) <= REFUSALS_KEPT + 500


@each_end
async def test_the_same_end_twice_is_answered_already(
    store: Store, hands: Hands, end: Callable[[Claimed], Transition]
) -> None:
    await enqueued(store)
    transition = end(await hands.claim_one())
    assert await hands.hand_in(transition) == [Answer.ACCEPTED]
    before = await row_of(store, transition.job_id)
    assert await hands.hand_in(transition) == [Answer.ALREADY]
    assert await row_of(store, transition.job_id) == before
    assert await store.inspector.refusals() == []


async def test_a_repeated_end_is_already_also_after_a_later_attempt(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    transition = ended(await hands.claim_one(), OutcomeKind.RELEASED)
    await hands.hand_in(transition)
    await hands.claim_one()
    assert await hands.hand_in(transition) == [Answer.ALREADY]


async def test_another_end_of_a_closed_attempt_is_refused(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed, OutcomeKind.CANCELLED))
    assert await hands.hand_in(ended(claimed)) == [Answer.REFUSED]
    assert (await row_of(store, claimed.job_id)).state is State.CANCELLED


async def test_a_completion_whose_commit_was_not_seen_is_answered_already(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed))
    unsure = crashed(claimed, CrashKind.COMPLETION_NOT_COMMITTED)
    assert await hands.hand_in(unsure) == [Answer.ALREADY]
    assert await hands.hand_in(crashed(claimed)) == [Answer.REFUSED]


async def test_a_token_of_another_job_is_refused(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job())
    one, two = await hands.claim()
    swapped = ended(msgspec.structs.replace(one, token=two.token))
    assert await hands.hand_in(swapped) == [Answer.REFUSED]
    assert (await row_of(store, one.job_id)).state is State.RUNNING


async def test_an_end_counts_though_its_worker_was_reaped(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await hands.vanish()
    exchanged = await hands.exchange(ended(claimed), limit=1)
    assert exchanged.answers == [Answer.ACCEPTED]
    assert not exchanged.valid


async def test_tokens_of_a_job_only_increase(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=0)))
    tokens = []
    for _ in range(3):
        claimed = await hands.claim_one()
        tokens.append(claimed.token)
        await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
        claimed = await hands.claim_one()
        tokens.append(claimed.token)
        await hands.hand_in(crashed(claimed))
        await store.requeue([job_id], from_scratch=True)
    assert tokens == sorted(set(tokens))


async def test_tokens_jump_beyond_what_a_worker_has_seen(store: Store, hands: Hands) -> None:
    """The clock is behind the tokens here, and others may know later ones than it has seen. A later
    jump from the same token is farther, since it grows with the clock."""
    await enqueued(store, *[job() for _ in range(4)])
    far = 10**16  # above the time of day
    await store.raise_tokens(far)
    token = (await hands.claim_one()).token
    assert token > far
    await store.raise_tokens(5)
    assert (await hands.claim_one()).token == token + 1
    before = SYSTEM.wall()
    seen = await Hands.on(store, "w2", token_seen=(lost := token + 5_000))
    token = (await seen.claim_one()).token
    step = token - lost - 1_000_000
    between = range(int(before * 1e6) >> 22, (int(SYSTEM.wall() * 1e6) >> 22) + 1)
    assert step > 0
    assert step >> 22 in {each % 1024 for each in between}
    again = await store.reconnect(hands.me, lost := token + 5_000)
    assert again is not None
    assert (await Hands(store, again).claim_one()).token > lost + 1_000_000
