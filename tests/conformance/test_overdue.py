"""Attempts past their hard deadline: shown by the store's clock, closed by their token, once."""

from __future__ import annotations

import pytest

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.protocol import ORPHANS_MAX, Store
from outlast.store.values import Answer, Orphan, OverdueAttempt, Report
from tests.conformance.kit import (
    Hands,
    crashed,
    ended,
    enqueued,
    eventually,
    job,
    lost_worker,
    no_dice,
    row_of,
)


@pytest.fixture
async def other(store: Store) -> Hands:
    """Another registered worker."""
    return await Hands.on(store, "w2")


def too_late(orphan: Orphan) -> Transition:
    crash = Crash(kind=CrashKind.TIMEOUT, message="far above its limit", worker=orphan.worker)
    return decide(orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash), no_dice)


async def late(store: Store, slack: float = 0.0) -> list[OverdueAttempt] | None:
    """Return the overdue attempts; time passes on the store's clock only."""
    return await store.overdue(slack) or None


async def test_a_look_shows_the_clock_and_whether_attempts_are_overdue(
    store: Store, hands: Hands
) -> None:
    first = await store.observe()
    await enqueued(store, job(), job(policy=Policy(timeout=3600.0)))
    await hands.claim()
    second = await store.observe()
    assert (first.overdue, second.overdue) == (False, False)
    assert 1.5e9 < first.now <= second.now
    await enqueued(store, job(policy=Policy(timeout=0.01)))
    await hands.claim()
    await eventually(lambda: late(store))
    assert (await store.observe()).overdue
    assert not (await store.observe(3600.0)).overdue


async def test_a_running_attempt_is_overdue_after_its_timeout(store: Store, hands: Hands) -> None:
    policy = Policy(timeout=0.01, cancel_grace=7.0)
    await enqueued(store, job(policy=policy))
    claimed = await hands.claim_one()
    (one,) = await eventually(lambda: late(store))
    assert (one.job_id, one.token, one.policy) == (claimed.job_id, claimed.token, policy)
    assert one.worker_id == hands.me.worker_id
    assert one.seconds > 0.0
    assert await store.overdue(3600.0) == []


async def test_the_most_overdue_attempts_come_first_up_to_the_limit(
    store: Store, hands: Hands
) -> None:
    first, _, _ = await enqueued(
        store,
        job(policy=Policy(timeout=0.001)),
        job(policy=Policy(timeout=0.002)),
        job(policy=Policy(timeout=0.003)),
    )
    await hands.claim()

    async def all_late() -> bool:
        return len(await store.overdue(0.0)) == 3

    await eventually(all_late)
    assert [one.job_id for one in await store.overdue(0.0, limit=1)] == [first]


async def test_no_more_are_closed_at_once_than_asked_for(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job(), job())
    pairs = [(each.job_id, each.token) for each in await hands.claim()]
    assert len(await store.reclaim(too_late, limit=2, only=pairs)) == 2
    assert len(await store.reclaim(too_late, limit=2, only=pairs)) == 1


async def test_more_are_told_than_are_closed_at_once(store: Store, hands: Hands) -> None:
    """What cannot be closed yet, such as an attempt with a long grace, hides no other."""
    await enqueued(store, *[job(policy=Policy(timeout=0.001))] * (ORPHANS_MAX + 1))
    claimed = await hands.claim(ORPHANS_MAX + 1)

    async def all_late() -> bool:
        return len(await store.overdue(0.0)) == len(claimed)

    await eventually(all_late)


async def test_an_ended_attempt_is_not_overdue(store: Store, hands: Hands) -> None:
    await enqueued(store, job(policy=Policy(timeout=0.01)))
    claimed = await hands.claim_one()
    await eventually(lambda: late(store))
    await hands.hand_in(ended(claimed))
    assert await store.overdue(0.0) == []


async def test_time_in_which_nothing_ran_moves_the_deadline(store: Store, hands: Hands) -> None:
    """Reports say the whole of it, so that one that arrives twice moves the deadline once; one that
    arrives late moves none back, and a late worker's moves none."""
    limited, free = await enqueued(store, job(policy=Policy(timeout=0.01)), job())
    claims = {each.job_id: each for each in await hands.claim()}
    claimed, token = claims[limited], claims[limited].token
    await eventually(lambda: late(store))
    first = (await row_of(store, limited)).hard_deadline
    assert first is not None
    half = Progress(fraction=0.5)
    for still, moved, said in [(3600.0, 3600.0, None), (3600.0, 3600.0, half), (0.0, 3600.0, half)]:
        reports = [
            Report(limited, token, said, still),
            Report(free, claims[free].token, said, still),
        ]
        assert await store.progress(reports) == [Answer.ACCEPTED] * 2
        row = await row_of(store, limited)
        assert row.hard_deadline == pytest.approx(first + moved, abs=0.01)
        assert row.progress == said
        assert (await row_of(store, free)).hard_deadline is None
        assert not (await store.observe()).overdue
        assert await late(store) is None
    await hands.hand_in(crashed(claimed, delay=0.0))
    await hands.claim_one()
    first = (await row_of(store, limited)).hard_deadline
    assert await store.progress([Report(limited, token, None, 7200.0)]) == [Answer.REFUSED]
    assert (await row_of(store, limited)).hard_deadline == first


async def test_overdue_attempts_of_a_live_worker_are_closed(store: Store, hands: Hands) -> None:
    late_one, healthy = await enqueued(store, job(policy=Policy(timeout=0.01)), job())
    claims = {each.job_id: each for each in await hands.claim()}
    token = claims[late_one].token
    stranger = (healthy, token)  # a pair of a worker and a token that match no attempt
    (closed,) = await store.reclaim(too_late, only=[(late_one, token), stranger])
    assert (closed.job_id, closed.token, closed.outcome) == (late_one, token, "timeout")
    row = await row_of(store, healthy)
    assert row.state is State.RUNNING
    (attempt,) = await store.inspector.attempts(late_one)
    assert (attempt.token, attempt.outcome, attempt.charge) == (token, "timeout", "failure")


async def test_the_late_end_of_its_worker_is_refused_and_the_next_attempt_is_not_touched(
    store: Store, hands: Hands, other: Hands
) -> None:
    await enqueued(store, job(policy=Policy(timeout=0.01, backoff_first=0.0)))
    claimed = await hands.claim_one()
    pair = (claimed.job_id, claimed.token)
    assert len(await store.reclaim(too_late, only=[pair])) == 1
    again = await other.claim_one()
    assert await hands.hand_in(ended(claimed)) == [Answer.REFUSED]
    assert await store.reclaim(too_late, only=[pair]) == []
    assert await other.hand_in(ended(again)) == [Answer.ACCEPTED]


async def test_an_end_that_was_handed_in_first_stands(store: Store, hands: Hands) -> None:
    await enqueued(store, job(policy=Policy(timeout=0.01)))
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed))
    assert await store.reclaim(too_late, only=[(claimed.job_id, claimed.token)]) == []


async def test_reclaiming_an_empty_list_changes_nothing(store: Store, hands: Hands) -> None:
    await enqueued(store)
    await hands.claim_one()
    await hands.vanish()
    assert await store.reclaim(too_late, only=[]) == []
    assert len(await store.reclaim(lost_worker)) == 1


async def test_only_an_attempt_that_another_worker_closed_is_superseded(
    store: Store, hands: Hands, other: Hands
) -> None:
    await enqueued(store, job(), job(), job(), job(policy=Policy(backoff_first=0.0)))
    running, completed, cut, taken = await hands.claim()
    held = [(each.job_id, each.token) for each in (running, completed, cut, taken)]
    assert await store.superseded(held) == []
    assert await store.superseded([]) == []
    await hands.hand_in(ended(completed))  # as by its own complete_in
    await store.reclaim(too_late, only=held[2:])
    (again,) = await other.claim()  # one of the two waits for its back-off
    assert again.job_id == taken.job_id
    assert sorted(await store.superseded(held)) == sorted([cut.token, taken.token])
    assert await store.superseded([(again.job_id, again.token)]) == []
