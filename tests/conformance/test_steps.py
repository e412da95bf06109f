"""Steps: one value for each (job, step), kept by the current attempt alone, and with the job."""

from __future__ import annotations

from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.values import Answer, Claimed, NamedStep, Requeued, StepFound
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

NOT_YET = StepFound(Answer.ACCEPTED)
NOT_CURRENT = StepFound(Answer.REFUSED)


def step(claimed: Claimed, name: str = "cover", value: str | None = None) -> NamedStep:
    return NamedStep(claimed.job_id, claimed.token, name, value)


async def keep(store: Store, claimed: Claimed, name: str = "cover", value: str = '"c1"') -> Answer:
    (answer,) = await store.keep_steps([step(claimed, name, value)])
    return answer


async def find(store: Store, claimed: Claimed, name: str = "cover") -> StepFound:
    (found,) = await store.find_steps([step(claimed, name)])
    return found


async def test_the_next_attempt_finds_the_value(store: Store, hands: Hands) -> None:
    await enqueued(store)
    first = await hands.claim_one()
    assert await find(store, first) == NOT_YET
    assert await keep(store, first) == Answer.ACCEPTED
    await hands.hand_in(ended(first, OutcomeKind.RELEASED))
    second = await hands.claim_one()
    assert await find(store, second) == StepFound(Answer.ALREADY, '"c1"')
    assert await find(store, second, "other") == NOT_YET


async def test_a_value_never_changes(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await keep(store, claimed)
    assert await keep(store, claimed) == Answer.ALREADY  # its answer was lost
    assert await keep(store, claimed, value='"c2"') == Answer.ALREADY
    assert await find(store, claimed) == StepFound(Answer.ALREADY, '"c1"')


async def test_a_late_workers_step_is_refused(store: Store, hands: Hands) -> None:
    await enqueued(store)
    late = await hands.claim_one()
    await hands.vanish()
    assert await reclaimed(store)
    assert await keep(store, late) == Answer.REFUSED  # while the job waits
    current = await (await Hands.on(store, "w2")).claim_one()
    assert await keep(store, late, value='"late"') == Answer.REFUSED
    assert await find(store, late) == NOT_CURRENT
    assert await find(store, current) == NOT_YET
    assert await keep(store, current) == Answer.ACCEPTED
    assert {refusal.verb for refusal in await store.inspector.refusals()} == {"step"}


async def test_a_batch_of_steps_is_answered_one_by_one(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job(), job())
    one, two, three = await hands.claim()
    await hands.hand_in(ended(three))
    await keep(store, two, "b")
    steps = [step(one, "a", "1"), step(two, "a", "2"), step(three, "a", "3")]
    steps += [step(two, "b", "4"), step(three, "b", "5"), step(one, "b", "6")]
    answers = await store.keep_steps(steps)
    assert answers == ["accepted", "accepted", "refused", "already", "refused", "accepted"]
    found = await store.find_steps([step(two, "b"), step(three, "a"), step(one, "a")])
    assert found == [("already", '"c1"'), ("refused", None), ("already", "1")]


async def test_a_step_forgives_losses_once(store: Store, hands: Hands) -> None:
    await enqueued(store, job(policy=Policy(backoff_first=0.0)))
    await hands.claim_one()
    await hands.vanish()
    await store.reclaim(lost_worker)
    again = await Hands.on(store, "w2")
    second = await again.claim_one()
    assert second.losses == 1
    await keep(store, second)
    assert (await row_of(store, second.job_id)).losses == 0
    await again.vanish()
    await store.reclaim(lost_worker)
    third = await (await Hands.on(store, "w3")).claim_one()
    await keep(store, third)  # the same step again: no progress
    assert (await row_of(store, third.job_id)).losses == 1


async def test_steps_stay_when_a_dead_job_is_requeued(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=0)))
    for from_scratch, found in ((False, '"c1"'), (True, None)):
        claimed = await hands.claim_one()
        await keep(store, claimed)
        await hands.hand_in(crashed(claimed))
        assert (await row_of(store, job_id)).state is State.DEAD
        answers = await store.requeue([job_id], from_scratch=from_scratch)
        assert answers == {job_id: Requeued.REQUEUED}
        again = await hands.claim_one()
        assert (await find(store, again)).value == found
        await hands.hand_in(ended(again, OutcomeKind.RELEASED))


async def test_steps_go_with_their_job(store: Store, hands: Hands) -> None:
    held = []
    for policy in (Policy(keep=0.0), Policy()):
        await enqueued(store, job(policy=policy))
        claimed = await hands.claim_one()
        await keep(store, claimed)
        assert [row.name for row in await store.inspector.steps(claimed.job_id)] == ["cover"]
        await hands.hand_in(ended(claimed))
        held.append(claimed.job_id)
    assert [len(await store.inspector.steps(job_id)) for job_id in held] == [0, 1]
    await store.prune(jobs_older_than=0.0, workers_older_than=1e9)
    assert await store.inspector.steps(held[1]) == []
